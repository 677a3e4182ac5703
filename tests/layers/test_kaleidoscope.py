import torch

from layers.butterfly import Butterfly
from layers.kaleidoscope import Kaleidoscope


def test_a_pair_is_a_butterfly_and_a_transposed_one(perturbed):
    layer = perturbed(Kaleidoscope, (2, 8), 0.1)
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
    assert perturbed(Kaleidoscope, (3, 5, 4), 0.1, width=3).dense().ne(0).all()


def test_a_remark_names_a_prime_above_the_largest_radix():
    assert Kaleidoscope((2, 31)).remark is None
    assert "the prime 37 is above 31" in Kaleidoscope((2, 37), width=2).remark
