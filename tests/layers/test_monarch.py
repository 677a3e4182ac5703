import pytest
import torch

from layers import UnsupportedShape
from layers.monarch import Monarch


def perturbed(shape, **options):
    torch.manual_seed(0)
    layer = Monarch(shape, **options).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return layer


@pytest.mark.parametrize(
    ("shape", "blocks"), [((4, 3, 3), (6, 6)), ((3, 5), (3, 5)), ((1, 7), (1, 7)), ((1, 1), (1, 1))]
)
def test_the_blocks_are_nearly_square_and_the_product_is_dense(shape, blocks):
    layer = perturbed(shape)
    assert (layer.rows, layer.columns) == blocks
    assert (layer.dense() != 0).all()


def test_one_factor_alone_stays_in_its_blocks():
    """Entry (i, j) depends on row i through R alone, and on column j through L alone."""
    layer = perturbed((2, 6), block_size=4)
    with torch.no_grad():
        layer.left.set_matrices(torch.eye(3).expand(4, -1, -1))
    row = torch.arange(12) // 4
    assert torch.equal(layer.dense() != 0, row[:, None] == row)
    layer = perturbed((2, 6), block_size=4)
    with torch.no_grad():
        layer.right.set_matrices(torch.eye(4).expand(3, -1, -1))
    column = torch.arange(12) % 4
    assert torch.equal(layer.dense() != 0, column[:, None] == column)


def test_a_block_size_that_does_not_divide_is_refused_with_an_alternative():
    with pytest.raises(UnsupportedShape, match="D = 12 is not divisible by block_size = 5"):
        Monarch((3, 4), block_size=5)
