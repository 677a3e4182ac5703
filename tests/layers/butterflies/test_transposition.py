import pytest
import torch

from layers.butterflies import pairs
from layers.butterflies.pairs import LEAST_SIDE, transposed


@pytest.mark.parametrize("shape", [(0, 40), (40, 0), (1, 40), (LEAST_SIDE, 40), (33, LEAST_SIDE - 1), (70, 65)])
@pytest.mark.parametrize("of_a_view", [False, True])
def test_transpose_and_its_gradient(shape, of_a_view):
    x = torch.arange(float(shape[0] * shape[1])).reshape(shape)
    x = (x.T.contiguous().T if of_a_view else x).requires_grad_()
    y = transposed(x)
    assert y.is_contiguous() and torch.equal(y, x.T)
    seed = torch.rand(shape)
    (gradient,) = torch.autograd.grad(y, x, seed.T)
    assert torch.equal(gradient, seed)
    assert torch.equal(transposed(x.detach()), x.T)


def test_the_gradient_is_contiguous():
    """Also if the incoming gradient is a view."""
    x = torch.rand(40, 50, requires_grad=True)
    seen = []
    x.register_hook(lambda gradient: seen.append(gradient.is_contiguous()))
    torch.autograd.grad(transposed(x), x, torch.rand(40, 50).T)
    torch.autograd.grad(transposed(x), x, torch.rand(50, 40))
    assert seen == [True, True]


def test_derivatives_of_every_kind(monkeypatch):
    monkeypatch.setattr(pairs, "LEAST_SIDE", 2)
    x = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(transposed, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda x: transposed(x).square(), x)
    jacobian = torch.func.jacrev(transposed)(x)
    assert torch.equal(jacobian, torch.func.jacfwd(transposed)(x))
    assert torch.equal(jacobian.sum((0, 1)), torch.ones_like(x))
