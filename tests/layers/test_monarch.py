import pytest
import torch

from layers import UnsupportedShape
from layers.butterfly import Butterfly
from layers.kaleidoscope import Kaleidoscope
from layers.monarch import Monarch


@pytest.mark.parametrize(
    ("shape", "blocks"), [((4, 3, 3), (6, 6)), ((3, 5), (3, 5)), ((1, 7), (1, 7)), ((1, 1), (1, 1))]
)
def test_the_blocks_are_nearly_square_and_the_product_is_dense(shape, blocks, perturbed):
    layer = perturbed(Monarch, shape, 0.2)
    assert (layer.rows, layer.columns) == blocks
    assert (layer.dense() != 0).all()


def test_one_factor_alone_stays_in_its_blocks(perturbed):
    """Entry (i, j) depends on row i through R alone, and on column j through L alone."""
    layer = perturbed(Monarch, (2, 6), 0.2, block_size=4)
    with torch.no_grad():
        layer.left.set_matrices(torch.eye(3).expand(4, -1, -1))
    row = torch.arange(12) // 4
    assert torch.equal(layer.dense() != 0, row[:, None] == row)
    layer = perturbed(Monarch, (2, 6), 0.2, block_size=4)
    with torch.no_grad():
        layer.right.set_matrices(torch.eye(4).expand(3, -1, -1))
    column = torch.arange(12) % 4
    assert torch.equal(layer.dense() != 0, column[:, None] == column)


def test_a_block_size_that_does_not_divide_is_refused_with_an_alternative():
    with pytest.raises(UnsupportedShape, match="D = 12 is not divisible by block_size = 5"):
        Monarch((3, 4), block_size=5)


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
