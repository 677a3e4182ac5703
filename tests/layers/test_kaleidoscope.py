import pytest
import torch

from harness.timing.operations import perturb
from layers.butterfly import Butterfly
from layers.kaleidoscope import Kaleidoscope


def perturbed(shape, **options):
    layer = Kaleidoscope(shape, **options).double()
    perturb(layer, 0.3, torch.Generator().manual_seed(0))
    return layer


def test_a_pair_is_a_butterfly_and_a_transposed_one():
    layer = perturbed((2, 8))
    weight = layer.layers[0].weight
    half = weight.shape[-1] // 2
    descending, ascending = (Butterfly((2, 8), order=order).double() for order in ("descending", "ascending"))
    with torch.no_grad():
        descending.weight.copy_(weight[..., half:])  # the factors of B, level 1 last
        ascending.weight.copy_(weight[..., :half].transpose(0, 1))  # those of B' transposed, level 1 first
    backwards = Butterfly((2, 8), order="descending").double()
    with torch.no_grad():  # B' itself: the transposed factors in reverse order
        backwards.weight.copy_(weight[..., :half].transpose(0, 1).unflatten(-1, (4, -1)).flip(-2).flatten(-2))
    torch.testing.assert_close(layer.dense(), descending.dense() @ backwards.dense().T)


@pytest.mark.parametrize("shape", [(1, 8), (4, 4, 4), (3, 5, 4)])
def test_pairs_multiply(shape):
    layer = perturbed(shape, width=3)
    first, second, third = (pair.dense() for pair in layer)
    torch.testing.assert_close(layer.dense(), third @ second @ first)
    x = torch.randn(2, *shape, dtype=torch.float64)
    torch.testing.assert_close(layer(x)[0].flatten(1), x.flatten(1) @ (third @ second @ first).T)
    assert layer.dense().ne(0).all()


def test_a_remark_names_a_prime_above_the_largest_radix():
    assert Kaleidoscope((2, 31)).remark is None
    assert "the prime 37 is above 31" in Kaleidoscope((2, 37), width=2).remark
