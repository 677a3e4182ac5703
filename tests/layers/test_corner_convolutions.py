"""Convolutions that are triangular, CInC, Inverse-Flow, FInC and MaCow, against their definitions."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from compared import follows

from layers import free_parameters
from layers.cinc import CInC
from layers.finc import FInC
from layers.inverse_flow import InverseFlow
from layers.kernels import load as kernels
from layers.macow import MaCow

pytestmark = pytest.mark.usefixtures("path")


def by_definition(layer):
    """Return M: y[p] = sum over taps t of A[t] x[p - t]; A[0] is lower triangular, of Inverse-Flow with ones in it."""
    channels, spatial, unit = layer.channels, layer.shape[1:], isinstance(layer, InverseFlow)
    matrix = (unit * torch.eye(layer.dim, dtype=torch.float64)).reshape(channels, *spatial, channels, *spatial)
    for place in itertools.product(*map(range, spatial)):
        for tap in itertools.product(range(layer.kernel_size), repeat=len(spatial)):
            source = tuple(p - t for p, t in zip(place, tap, strict=True))
            if min(source) >= 0:
                for out, inp in itertools.product(range(channels), repeat=2):
                    if any(tap) or inp < out + (not unit):
                        matrix[(out, *place, inp, *source)] = layer.weight[(out, inp, *tap)]
    return matrix.reshape(layer.dim, layer.dim)


@pytest.mark.parametrize("shape", [(2, 4, 5), (3, 2, 4), (1, 3, 3), (3, 7)])
@pytest.mark.parametrize("kernel_size", [1, 2, 3, 6])
@pytest.mark.parametrize("cls", [CInC, InverseFlow])
@torch.no_grad()
def test_one_corner_follows_its_definition(cls, shape, kernel_size, perturbed):
    layer = perturbed(cls, shape, 0.3 / kernel_size ** (len(shape) - 1), kernel_size=kernel_size)
    matrix = by_definition(layer)
    follows(layer, matrix if cls is CInC else torch.linalg.inv(matrix))
    assert cls is CInC or layer.log_det() == 0


def test_a_zero_on_the_diagonal_of_the_first_tap_is_singular():
    layer = CInC((2, 4, 4))
    with torch.no_grad():
        layer.weight[1, 1, 0, 0] = 0
    assert layer.log_det() == -math.inf
    assert free_parameters(layer) == 2 * 2 * 9 - 1


def test_gradients_are_those_of_the_implicit_function(perturbed):
    layer = perturbed(InverseFlow, (2, 4, 5), 0.03)
    x, gradient = torch.randn(2, 3, 2, 4, 5, dtype=torch.float64)
    x.requires_grad_()
    y = layer(x)[0]
    of_x, of_weight = torch.autograd.grad(y, (x, layer.weight), gradient)
    solved = torch.linalg.solve(by_definition(layer).T, gradient.flatten(1).T).T.reshape(y.shape)
    torch.testing.assert_close(of_x, solved)
    shifted = torch.stack(
        [F.pad(y, (j, 0, i, 0))[..., :4, :5] for i, j in itertools.product(range(3), repeat=2)]
    ).unflatten(0, (3, 3))
    expected = -torch.einsum("norc,ijnprc->opij", solved, shifted)
    torch.testing.assert_close(of_weight, expected * layer.weight_mask)
    assert free_parameters(layer) == 2 * 2 * 9 - 3


def test_each_group_depends_on_itself_and_its_corner(perturbed):
    layer = perturbed(FInC, (8, 4, 5), 0.2, kernel_size=2)
    place = 2 * 5 + 2  # of a pixel inside
    channels = layer.dense().reshape(4, 2, 20, 4, 2, 20)
    seen = [
        {(p // 5 - 2, p % 5 - 2) for p in range(20) if channels[group, :, place, group, :, p].any()}
        for group in range(4)
    ]
    for group, (down, right) in enumerate([(1, 1), (1, -1), (-1, 1), (-1, -1)]):
        assert seen[group] == {(a, b) for a in (0, down) for b in (0, right)}
        others = channels[group].clone()
        others[:, :, group] = 0
        assert not others.any()
    layer = perturbed(FInC, (4, 6), 0.2, kernel_size=3)
    channels = layer.dense().reshape(2, 2, 6, 2, 2, 6)
    assert all(torch.equal(block, block.triu()) for block in channels[0, :, :, 0].permute(0, 2, 1, 3).flatten(0, 1))
    assert all(torch.equal(block, block.tril()) for block in channels[1, :, :, 1].permute(0, 2, 1, 3).flatten(0, 1))


@pytest.mark.parametrize("shape", [(5, 4, 6), (8, 3, 3), (2, 5, 2), (3, 9)])
@pytest.mark.parametrize("kernel_size", [2, 3, 6])
def test_the_determinant_is_1_and_both_solves_are_exact(shape, kernel_size, perturbed):
    layer = perturbed(FInC, shape, 0.2, kernel_size=kernel_size)
    follows(layer, layer.dense())
    assert torch.linalg.slogdet(layer.dense()).logabsdet.abs() < 1e-10


def test_free_parameters_exclude_masked_weights_and_the_compiled_kernel_is_used():
    layer = FInC((6, 4, 4), kernel_size=3)
    assert layer.sizes == [2, 2, 1, 1]
    assert [int(layer.get_buffer(f"weight{group}_mask").sum()) for group in range(4)] == [33, 33, 8, 8]
    with torch.profiler.profile() as profile:
        layer.inverse(torch.randn(2, 6, 4, 4))
    used = any("emerging_inverse" in event.key for event in profile.key_averages())
    assert used == kernels.serve(layer.weight0)


def macow_by_definition(layer):
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
@torch.no_grad()
def test_macow_follows_its_definition(shape, kernel_size, perturbed):
    layer = perturbed(MaCow, shape, 0.3 / kernel_size, kernel_size=kernel_size)
    follows(layer, macow_by_definition(layer))


def test_counts_of_macow():
    assert free_parameters(MaCow((3, 4, 4))) == 4 * 9 * 6 + 3
    assert free_parameters(MaCow((3, 8))) == 2 * 9 * 2 + 3
