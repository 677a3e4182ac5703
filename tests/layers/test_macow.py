import itertools

import pytest
import torch

from layers import free_parameters
from layers.macow import MaCow


def by_definition(layer):
    """Return exp(s) times the factors: each pixel plus what its window on one side weighs, tap by tap."""
    channels, depth, half = layer.channels, layer.depth, layer.kernel_size // 2
    height, width = (*layer.shape[1:], 1)[:2]
    total = torch.eye(layer.dim, dtype=torch.float64)
    sides = {"above": (-1, 0), "below": (1, 0), "left": (0, -1), "right": (0, 1)}
    for direction in layer.directions:
        down, across = sides[direction]
        factor = torch.eye(layer.dim, dtype=torch.float64).reshape(channels, height, width, channels, height, width)
        for r, s in itertools.product(range(height), range(width)):
            for i, j in itertools.product(range(1, depth + 1), range(-half, half + 1)):
                row, column = r + i * down + j * (across != 0), s + i * across + j * (down != 0)
                sequence = len(layer.shape) == 2
                if 0 <= row < height and 0 <= column < width and not (sequence and j):
                    # Stored as the window above: the farthest row first; turned to its side for the other directions.
                    taps = getattr(layer, direction)[:, :, depth - i, 0 if sequence else j + half]
                    factor[:, r, s, :, row, column] += taps
        total = factor.reshape(layer.dim, layer.dim) @ total
    return layer.log_scale.exp().repeat_interleave(layer.positions)[:, None] * total


@pytest.mark.parametrize("shape", [(2, 4, 5), (3, 3, 2), (1, 1, 4), (3, 7)])
@pytest.mark.parametrize("kernel_size", [1, 3, 5])
@pytest.mark.usefixtures("path")
@torch.no_grad()
def test_against_the_definition(shape, kernel_size, perturbed):
    layer = perturbed(MaCow, shape, 0.3 / kernel_size, kernel_size=kernel_size)
    x = torch.randn(2, *shape, dtype=torch.float64)
    weight = by_definition(layer)
    y, log_det = layer(x)
    torch.testing.assert_close(y.flatten(1), x.flatten(1) @ weight.T)
    torch.testing.assert_close(log_det, torch.linalg.slogdet(weight).logabsdet)
    torch.testing.assert_close(layer.dense(), weight)
    torch.testing.assert_close(layer.inverse(y), x)


def test_counts():
    assert free_parameters(MaCow((3, 4, 4))) == 4 * 9 * 6 + 3
    assert free_parameters(MaCow((3, 8))) == 2 * 9 * 2 + 3
