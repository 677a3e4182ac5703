"""The compiled ELU of couplings equals the definition."""

import pytest
import torch
import torch.nn.functional as F

from flows import elu as module
from flows.elu import elu
from layers.kernels import load as kernels

pytestmark = pytest.mark.skipif(not kernels.load(), reason="no compiled kernels")


@pytest.fixture(autouse=True)
def tiny_tensors_too(monkeypatch):
    monkeypatch.setattr(module, "FEWEST", 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values(dtype):
    """Relative to expm1, to four units in the last place at any magnitude, also of the last, incomplete vector."""
    info = torch.finfo(dtype)
    magnitudes = torch.logspace(torch.tensor(info.tiny).log10().item(), 3, 20_001, dtype=torch.float64).to(dtype)
    ends = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    x = torch.cat([-magnitudes, magnitudes, -torch.linspace(0, 3, 10_001, dtype=dtype), ends])
    expected = torch.where(x > 0, x, torch.expm1(x.double()).to(dtype))
    torch.testing.assert_close(elu(x), expected, rtol=4 * info.eps, atol=0, equal_nan=True)


def test_derivatives():
    x = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(elu, x)
    assert torch.autograd.gradgradcheck(elu, x)
    sample = torch.linspace(-50, 5, 1001, requires_grad=True)
    ours, plain = (torch.autograd.grad(function(sample).sum(), sample)[0] for function in (elu, F.elu))
    torch.testing.assert_close(ours, plain, rtol=0, atol=torch.finfo(torch.float32).eps)


def test_any_order_in_memory(case):
    x = torch.randn(3, 8, 6, 5)
    views = {
        "contiguous": x,
        "channels last": x.contiguous(memory_format=torch.channels_last),
        "transposed": x.transpose(0, 2),
        "part of the channels": x[:, 1:4],
        "expanded": x[:, :1].expand(-1, 4, -1, -1),
        "empty": x[:0],
    }
    for name, view in views.items():
        with case(view=name):
            y = elu(view)
            torch.testing.assert_close(y, F.elu(view))
            assert y.stride() == torch.empty_like(view).stride()
            seed = torch.randn(view.shape)
            gradients = [torch.autograd.grad(f(leaf), leaf, seed) for f in (elu, F.elu)
                         for leaf in [view.detach().requires_grad_()]]  # fmt: skip
            torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_operator(dtype):
    for x in (torch.randn(2, 3, 4, 5, dtype=dtype), torch.randn(7, dtype=dtype, requires_grad=True)):
        torch.library.opcheck(torch.ops.invertbench.elu, (x,))


def test_other_tensors_use_torch():
    x = torch.randn(9, dtype=torch.bfloat16)
    assert torch.equal(elu(x), F.elu(x))
    real = torch.randn(2, 9)
    torch.testing.assert_close(torch.func.vmap(elu)(real), F.elu(real))
