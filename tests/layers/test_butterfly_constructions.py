"""Block-wise butterflies with weights built by hand, compared with the layers that they reproduce, in float64."""

import math

import pytest
import torch

from layers.butterflies.pairs import ButterflyPart, ButterflyPlan
from layers.butterflies.permutations import benes_levels
from layers.butterflies.stages import apply_stages, stages_of_plan
from layers.butterfly import Butterfly
from layers.conv1x1 import Conv1x1
from layers.periodic import Periodic


def entries_of(x):
    """Return (N, c, *spatial) as (D, N) in (h, w, c) order."""
    return x.flatten(2).permute(2, 1, 0).flatten(0, 1)


def fourier_factors(sizes):
    """Return the Cooley-Tukey factors of the DFT over a grid of n = 2^m positions: (pairs, 2, 2) for levels 1..m.

    On one axis the factor of level i takes (u, v) to (u + v, (u - v) w), w = exp(-2 pi i k / l) at place k of l; the
    result is the DFT in bit-reversed order. On a grid each axis in turn has separate levels.
    """
    positions, factors = math.prod(sizes), []
    outside = 1  # places of the axes before this one
    for size in sizes:
        inside = positions // outside // size
        for level in range(1, size.bit_length()):
            length = size >> (level - 1)
            twiddle = torch.exp(-2j * torch.pi * torch.arange(length // 2, dtype=torch.float64) / length)
            ones = torch.ones_like(twiddle)
            matrices = torch.stack((torch.stack((ones, ones), -1), torch.stack((twiddle, -twiddle), -1)), -2)
            runs = outside << (level - 1)
            factors.append(matrices.repeat_interleave(inside, 0).repeat(runs, 1, 1))
        outside *= size
    return factors


def frequency_order(sizes):
    """Return the frequency of each bit-reversed output of `fourier_factors`, as a row-major place on the grid."""
    place = torch.zeros(1, dtype=torch.long)
    for size in sizes:
        bits = size.bit_length() - 1
        reverse = sum((torch.arange(size) >> bit & 1) << (bits - 1 - bit) for bit in range(bits))
        place = (place[:, None] * size + reverse).flatten()
    return place


def transfer(layer):
    """Return What(f), the transform of the taps, for every frequency in row-major order: (n, c, c)."""
    grid = torch.cartesian_prod(*(torch.arange(size, dtype=torch.float64) for size in layer.shape[1:]))
    taps = torch.cartesian_prod(*[torch.arange(layer.kernel_size) - layer.centre] * len(layer.shape[1:]))
    sizes = torch.tensor(layer.shape[1:])
    phase = (grid.reshape(layer.positions, -1) / sizes) @ taps.double().reshape(-1, len(sizes)).T
    waves = torch.exp(2j * torch.pi * phase)
    return torch.einsum("fs,ois->foi", waves, layer.weight.detach().flatten(2).to(waves.dtype))


def periodic_weight(layer):
    """Return the 2m - 1 factors of B^H What B / n: the DFT is F = P B = B^T P with the bit reversal P, so that
    F^-1 What F = B^H (P What P) B / n, and the block diagonal in the middle joins the two factors of level m."""
    sizes = layer.shape[1:]
    identity = torch.eye(layer.channels, dtype=torch.complex128)
    there = [torch.kron(pairs, identity) for pairs in fourier_factors(sizes)]
    back = [pairs.mH for pairs in reversed(there)]
    spectrum = transfer(layer)[frequency_order(sizes)] / layer.positions
    upper, lower = spectrum.unflatten(0, (-1, 2)).unbind(1)  # the two places of a pair of level m
    diagonal = torch.stack([torch.block_diag(u, v) for u, v in zip(upper, lower, strict=True)])
    return torch.cat([*there[:-1], back[0] @ diagonal @ there[-1], *back[1:]])


@pytest.mark.parametrize(
    ("shape", "kernel_size"),
    [
        ((1, 4, 4), 3),
        ((3, 8, 4), 3),
        ((2, 2, 8), 5),
        ((4, 4, 16), 4),
        ((2, 16, 1), 3),
        ((3, 16), 3),
        ((2, 2), 1),
        ((12, 16, 16), 3),
    ],
)
def test_every_periodic_convolution(shape, kernel_size, perturbed):
    """A full c x c kernel, with complex weights: block size c, (h, w, c) order, 2m - 1 factors of levels 1..m..1."""
    conv = perturbed(Periodic, shape, 0.05, kernel_size=kernel_size, bias=False)
    levels = benes_levels(conv.positions)
    assert len(levels) == 2 * int(math.log2(conv.positions)) - 1
    plan = ButterflyPlan((ButterflyPart(conv.positions, tuple(levels)),))
    weight = periodic_weight(conv)
    x = torch.randn(2, *shape, dtype=torch.float64)
    expected, log_det = conv(x)
    chain = list(zip(stages_of_plan(plan, conv.channels)[0], weight.split(plan.lengths), strict=True))
    y = apply_stages(chain, entries_of(x))
    torch.testing.assert_close(y, entries_of(expected).to(y.dtype), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(torch.linalg.slogdet(weight).logabsdet.sum(), log_det.detach())
    back = apply_stages([(stage, torch.linalg.inv(matrices)) for stage, matrices in reversed(chain)], y)
    torch.testing.assert_close(back, entries_of(x).to(y.dtype), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("shape", [(3, 4, 2), (4, 6), (2, 1, 2), (1, 8)])
def test_a_1x1_convolution(shape, shared, perturbed):
    """One factor with zero off-diagonal blocks and W on the diagonal ones, in (h, w, c) order."""
    conv = perturbed(Conv1x1, shape, 0.2)
    weight = conv.matrix().detach()
    pair = torch.block_diag(weight, weight)
    x = torch.randn(2, *shape, dtype=torch.float64)
    expected, log_det = conv(x)
    if conv.channels > 1:  # through the parameters of a layer
        options = {"block_size": conv.channels, "levels": [1], "flatten": "channels_last", "shared": shared}
        layer = Butterfly(shape, **options).double()
        (matrices,) = layer.product.matrices
        matrices.set_matrices(pair.expand_as(matrices.matrices()))
        y, value = layer(x)
        torch.testing.assert_close(y, expected)
        torch.testing.assert_close(value, log_det)
        torch.testing.assert_close(layer.inverse(expected), x)
        torch.testing.assert_close(layer.dense(), conv.dense())
    plan = ButterflyPlan((ButterflyPart(conv.positions, (1,)),), shared)
    (stage,) = stages_of_plan(plan, conv.channels)[0]
    y = apply_stages([(stage, pair.expand(sum(plan.lengths), -1, -1))], entries_of(x))
    torch.testing.assert_close(y, entries_of(expected))
