"""Butterflies on any dimension: stages, mixing, parameter counts, parts for large primes, options."""

import inspect
import itertools
import math
from dataclasses import replace

import pytest
import torch

from harness.cli.list import docstring_fields
from layers import LAYERS
from layers.base import push_identity
from layers.butterflies.stages import (
    LARGEST_PRIME,
    Stage,
    apply_stages,
    prime_factors,
    smooth_parts,
    stage_matrix,
    stages_of,
)
from layers.butterfly import Butterfly
from layers.linalg.plu import PLUMatrices


def support(layer):
    """Return True where an entry reaches another, exactly: with ones as matrices nothing cancels."""
    product = torch.eye(layer.dim, dtype=torch.float64)
    offset = 0
    for size, stages in zip(layer.sizes, layer.stages, strict=True):
        block = product[offset : offset + size]
        for stage in stages:
            ones = torch.ones(stage.blocks * stage.stride, *[stage.radix * stage.width] * 2, dtype=block.dtype)
            block = apply_stages([(stage, ones)], block)
        product[offset : offset + size] = block
        offset += size
    return product > 0


def test_prime_factors_stages_and_parts():
    assert prime_factors(784) == [2, 2, 2, 2, 7, 7] and prime_factors(3072) == [2] * 10 + [3]
    assert prime_factors(1) == [] and prime_factors(97) == [97]
    assert all(math.prod(prime_factors(n)) == n for n in range(1, 200))
    assert stages_of(12) == [Stage(2, 1, 6), Stage(2, 2, 3), Stage(3, 4, 1)]
    assert stages_of(1) == []
    assert smooth_parts(784) == [784] and smooth_parts(31) == [31]
    assert smooth_parts(37) == [36, 1] and smooth_parts(2 * 397) == [792, 2]
    for dim in range(1, 2000, 37):
        parts = smooth_parts(dim)
        assert sum(parts) == dim and parts == sorted(parts, reverse=True)
        assert all(max(prime_factors(size), default=1) <= LARGEST_PRIME for size in parts)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("stage", [Stage(3, 2, 4), Stage(5, 1, 3), Stage(2, 6, 1), Stage(7, 1, 1), Stage(2, 3, 2)])
def test_a_stage_equals_its_definition(stage, width, shared):
    """Unit o s + j of a block comes from units i s + j of the same block, by one matrix."""
    torch.manual_seed(0)
    stage = replace(stage, width=width)
    radix, blocks, stride = stage.radix, stage.blocks, stage.stride
    size = radix * blocks * stride * width
    matrices = torch.randn(blocks * (1 if shared else stride), radix * width, radix * width, dtype=torch.float64)
    expected = torch.zeros(size, size, dtype=torch.float64)
    for block, place in itertools.product(range(blocks), range(stride)):
        start = block * radix * stride + place
        matrix = matrices[block] if shared else matrices[block * stride + place]
        for o, i, a, b in itertools.product(range(radix), range(radix), range(width), range(width)):
            to, of = width * (start + o * stride) + a, width * (start + i * stride) + b
            expected[to, of] = matrix[width * o + a, width * i + b]
    torch.testing.assert_close(apply_stages([(stage, matrices)], torch.eye(size, dtype=torch.float64)), expected)
    torch.testing.assert_close(stage_matrix(matrices, stage).to_dense(), expected)


@pytest.mark.parametrize(
    ("options", "radices"),
    [
        ({}, [2, 2, 3, 5]),
        ({"order": "descending"}, [5, 3, 2, 2]),
        ({"bi_direction": True}, [2, 2, 3, 5, 3, 2, 2]),
        ({"bi_direction": True, "order": "descending"}, [5, 3, 2, 2, 2, 3, 5]),
    ],
)
def test_order_of_stages(options, radices, perturbed):
    """Stages applied by hand in that order, with the layer's matrices, give its map."""
    layer = perturbed(Butterfly, (3, 4, 5), **options)
    stages = layer.stages[0]
    assert [stage.radix for stage in stages] == radices
    matrices = []
    for run in layer.product:
        if isinstance(run, Butterfly):
            matrices += run.weight.detach().permute(2, 0, 1).split(30)
        else:
            matrices += run.by_stage(PLUMatrices.matrices)
    x = torch.randn(60, 2, dtype=torch.float64)
    y = x
    for matrix, stage in zip(matrices, stages, strict=True):
        y = apply_stages([(stage, matrix)], y)
    torch.testing.assert_close(layer(x.T.reshape(2, 3, 4, 5))[0].flatten(1).T, y)


@pytest.mark.parametrize("shape", [(1, 6), (3, 4), (5, 2, 3), (1, 500), (1, 28, 28), (3, 16, 16)], ids=str)
def test_one_pass_is_dense(shape, case, perturbed):
    for options in ({}, {"order": "descending"}, {"block_size": 2}):
        with case(options=options):
            layer = Butterfly(shape, **options)
            assert support(layer).all()
            assert (perturbed(Butterfly, shape, **options).dense() != 0).all()  # of the weights of a layer, too


@pytest.mark.parametrize("options", [{}, {"levels": 4}, {"levels": [1]}, {"partition": [8, 4], "levels": [1, 1]}])
def test_the_options_of_the_paper_give_its_layer(options):
    layer = Butterfly((3, 4) if "partition" in options else (3, 16) if options else (2, 8), **options)
    assert not layer.mixed and list(layer.state_dict()) == ["weight"] and layer.remark is None


def test_factors_of_two_equal_those_of_the_butterfly(perturbed):
    """On 3 * 2^k with an identity for the odd stage, equal bit by bit to the paper's levels."""
    mixed, plain = Butterfly((3, 16)), perturbed(Butterfly, (3, 16), levels=4)
    mixed.double().product.layers[0].weight.data.copy_(plain.weight.data)
    x = torch.randn(4, 3, 16, dtype=torch.float64)
    assert torch.equal(mixed(x)[0], plain(x)[0])


@pytest.mark.parametrize(
    ("shape", "options"),
    [((3, 5, 2), {}), ((3, 4, 4), {"block_size": 3}), ((3, 4, 4), {"block_size": 3, "shared": True})],
)
def test_initialisation(shape, options):
    torch.manual_seed(0)
    identity = torch.eye(math.prod(shape))
    for initialisation in ("identity", "rotation"):
        layer = Butterfly(shape, initialisation=initialisation, **options)
        matrix = push_identity(layer)
        torch.testing.assert_close(matrix @ matrix.T, identity)
        assert torch.equal(matrix, identity) is (initialisation == "identity")
        assert layer(torch.randn(1, *shape))[1].abs() < 1e-5


def test_a_remark_says_that_a_large_prime_is_cut():
    layer = Butterfly((2, 47))
    assert layer.sizes == [93, 1]
    for text in (layer.remark, repr(layer)):
        assert "93" in text
    assert layer.remark == "D = 94 = 2 * 47 is cut into parts of 93, 1: the prime 47 is above 31; parts do not mix"
    assert torch.equal(support(layer), torch.block_diag(torch.ones(93, 93), torch.ones(1, 1)) > 0)
    assert Butterfly((2, 31)).remark is None
    layer = Butterfly((3, 74), block_size=3)
    assert layer.sizes == [216, 6] and "block_size=3" in repr(layer)
    assert layer.remark.startswith("D = 222 = 2 * 37 blocks of 3 is cut into parts of 216, 6: the prime 37 is above 31")


FIELDS = {name: docstring_fields(inspect.cleandoc(cls.__doc__ or "")) for name, cls in LAYERS.items()}
EVERY_SHAPE = [
    name for name, fields in FIELDS.items() if fields.get("Shapes", "").startswith("every (C, L) and (C, H, W)")
]
SHAPES = [(1, 1), (1, 1, 1), (3, 1), (7, 1, 5), (2, 125), (5, 24, 7), (1, 37), (13, 3, 2), (17, 4)]


@pytest.mark.parametrize("name", EVERY_SHAPE)
def test_layers_documented_for_every_shape_refuse_none(name, case):
    """Rectangular images, any length, any number of channels, primes: under the layer's defaults."""
    for shape in SHAPES:
        with case(shape=shape):
            torch.manual_seed(0)
            layer = LAYERS[name](shape).double()
            x = torch.randn(2, *shape, dtype=torch.float64)
            y, log_det = layer(x)
            assert y.shape == x.shape and log_det.isfinite()
            torch.testing.assert_close(layer.inverse(y), x)
