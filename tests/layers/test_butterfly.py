import re

import pytest
import torch
from compared import follows

from flows import Squeeze
from harness.checking.check_layer import run_check
from harness.checking.layer_case import LayerCase
from layers import UnsupportedShape, free_parameters
from layers.butterflies import pairs as factors
from layers.butterflies.pairs import ButterflyPart, ButterflyPlan
from layers.butterflies.plan import make_plan
from layers.butterflies.stages import product_matrix, stages_of_plan
from layers.butterfly import Butterfly
from layers.linalg.plu import random_rotations


def levels_of(layer):
    return [part.levels for part in layer.plan.parts]


def factor_by_hand(matrices, size, level):
    """Return B(level, size), built entry by entry from matrices[o][i][pair] (one pair per block if shared)."""
    blocks, length = 2 ** (level - 1), size // 2 ** (level - 1)
    half = length // 2
    shared = matrices.shape[-1] == blocks != blocks * half
    out = torch.zeros(size, size, dtype=matrices.dtype)
    for block in range(blocks):
        for k in range(half):
            pair = block if shared else block * half + k
            rows = (block * length + k, block * length + half + k)
            for o in range(2):
                for i in range(2):
                    out[rows[o], rows[i]] = matrices[o, i, pair]
    return out


def product_by_hand(layer, levels):
    """Return the product of the factors of an unpartitioned layer, the first level applied first."""
    size, offset = layer.dim, 0
    product = torch.eye(size, dtype=layer.weight.dtype)
    for level in levels:
        length = 2 ** (level - 1) if layer.plan.shared else size // 2
        product = factor_by_hand(layer.weight[:, :, offset : offset + length], size, level) @ product
        offset += length
    assert offset == layer.weight.shape[-1]
    return product


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("options", "applied"),
    [
        ({"levels": 3}, (1, 2, 3)),
        ({"levels": 3, "order": "descending"}, (3, 2, 1)),
        ({"levels": 2, "bi_direction": True}, (1, 2, 2, 1)),
        ({"levels": 3, "order": "descending", "bi_direction": True}, (3, 2, 1, 1, 2, 3)),
        ({"levels": [2, 3, 1, 3]}, (2, 3, 1, 3)),
        ({"levels": []}, ()),
        ({"levels": 0}, ()),
    ],
)
def test_order_of_application(options, applied, shared, perturbed):
    """D = 24 = 3 * 2^3, against products of hand-built factors."""
    layer = perturbed(Butterfly, (3, 8), shared=shared, **options)
    assert levels_of(layer) == [applied]
    follows(layer, product_by_hand(layer, applied))


@pytest.mark.parametrize(("shape", "levels"), [((3, 2, 4), 3), ((2, 8), 4)])
def test_flatten_orders(shape, levels, perturbed):
    last = perturbed(Butterfly, shape, levels=levels, flatten="channels_last")
    first = perturbed(Butterfly, shape, levels=levels)
    x = torch.randn(2, *shape, dtype=torch.float64)
    matrix = product_by_hand(first, levels_of(first)[0])
    torch.testing.assert_close(first(x)[0].flatten(1), x.flatten(1) @ matrix.T)
    rows = x.movedim(1, -1).flatten(1) @ matrix.T  # (h, w, c) or (t, c)
    expected = rows.reshape(2, *shape[1:], shape[0]).movedim(-1, 1)
    torch.testing.assert_close(last(x)[0], expected)
    assert not torch.allclose(first(x)[0], expected)


@pytest.mark.parametrize(
    ("shape", "options", "stored"),
    [
        ((4, 512), {"levels": 10, "shared": True}, 4 * (2**10 - 1)),
        ((4, 256), {"levels": 9, "shared": True}, 4 * (2**9 - 1)),
        ((3, 32, 32), {"levels": 1}, 6144),
        ((12, 16, 16), {"levels": 10}, 61440),
        ((1, 28, 28), {"partition": [512, 256, 16], "levels": [9, 8, 4]}, 2 * (9 * 512 + 8 * 256 + 4 * 16)),
        ((4, 512), {"levels": [10], "shared": True}, 4 * 2**9),
        ((2, 8), {"levels": 3, "bi_direction": True, "shared": True}, 2 * 4 * (2**3 - 1)),
        ((3, 5), {"levels": 0}, 0),
    ],
)
def test_counts(shape, options, stored):
    layer = Butterfly(shape, **options)
    assert sum(p.numel() for p in layer.parameters()) == free_parameters(layer) == stored


@pytest.mark.parametrize(
    ("shape", "options", "stored", "free"),
    [
        ((1, 28, 28), {}, (8 + 15 + 15) * 784, (8 + 7 + 7) * 784),
        ((3, 32, 32), {}, (20 + 7) * 3072, (20 + 3) * 3072),
        ((3, 4, 5), {"block_size": 3}, (13 + 13 + 31) * 60, (6 + 6 + 15) * 60),
        ((3, 32, 32), {"block_size": 3, "levels": 2}, 2 * 13 * 3072, 2 * 6 * 3072),
        ((3, 32, 32), {"block_size": 3, "levels": 3, "shared": True}, (1 + 2 + 4) * (2 * 36 + 6), (1 + 2 + 4) * 36),
    ],
)
def test_counts_of_plu_factors(shape, options, stored, free):
    """(2 p C + 1) D for a stage of p and blocks of C, p C D of them free; shared, one matrix for each block."""
    layer = Butterfly(shape, **options)
    assert (sum(p.numel() for p in layer.parameters()), free_parameters(layer)) == (stored, free)


@pytest.mark.parametrize("shared", [False, True])
def test_initialisation(shared):
    torch.manual_seed(0)
    identity = Butterfly((2, 8), shared=shared)
    x = torch.randn(3, 2, 8)
    assert torch.equal(identity(x)[0], x)
    rotation = Butterfly((4, 64), shared=shared, initialisation="rotation")
    (a, b), (c, d) = rotation.weight.detach()
    torch.testing.assert_close(a * d - b * c, torch.ones_like(a))
    torch.testing.assert_close((a, b), (d, -c))
    assert rotation(torch.randn(1, 4, 64))[1].abs() < 1e-4
    angle = torch.atan2(c, a)  # uniform on the circle: all quadrants, mean near zero
    assert angle.sin().mean().abs() < 0.2
    assert angle.cos().mean().abs() < 0.2
    assert angle.unique().numel() > 0.9 * angle.numel()


@pytest.mark.parametrize("shared", [False, True])
def test_complex_weights(shared):
    """The functions on factors support complex weights: matrix, inverse, log-det, gradients."""
    torch.manual_seed(0)
    plan = ButterflyPlan((ButterflyPart(8, (1, 3, 2)), ButterflyPart(6, (1,))), shared)
    weight = torch.randn(2, 2, sum(plan.lengths), dtype=torch.complex128, requires_grad=True)
    x = torch.randn(14, 3, dtype=torch.complex128, requires_grad=True)
    multiplicity = factors.multiplicities(plan).double()
    y, pieces = factors.apply(weight, x, plan), iter(weight.detach().permute(2, 0, 1).split(plan.lengths))
    chains = [[(stage, next(pieces)) for stage in part] for part in stages_of_plan(plan)]
    matrix = product_matrix(chains, plan.sizes, weight)
    torch.testing.assert_close(y, matrix @ x)
    torch.testing.assert_close(factors.apply_inverse(factors.invert_weight(weight), y, plan), x)
    log_det = factors.log_abs_det(weight, multiplicity)
    assert log_det.dtype == torch.float64
    torch.testing.assert_close(log_det, torch.linalg.slogdet(matrix)[1])
    real = torch.randn(14, 3, dtype=torch.float64)
    torch.testing.assert_close(factors.apply(weight, real, plan), matrix @ real.to(matrix.dtype))

    def run(weight, x):
        return factors.apply(weight, x, plan), factors.log_abs_det(weight, multiplicity)

    assert torch.autograd.gradcheck(run, (weight, x))


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((1, 16), {}),
        ((3, 8), {"block_size": 3}),
        ((2, 8), {"shared": True, "bi_direction": True, "levels": 3}),
        ((2, 4), {"levels": [2, 1, 2]}),
        ((3, 20), {}),
        ((3, 20), {"block_size": 3, "bi_direction": True, "shared": True}),
    ],
)
def test_the_product_of_the_factors_is_the_layer(shape, options):
    torch.manual_seed(0)
    layer = Butterfly(shape, initialisation="rotation", **options)
    product = torch.eye(layer.dim)
    for _, matrix in layer.factors():
        product = matrix @ product
    assert torch.allclose(product, layer.dense(), atol=1e-6)
    assert not torch.allclose(product, product.T, atol=1e-2), "the other order would do as well"


def test_blocks_start_as_rotations():
    torch.manual_seed(0)
    layer = Butterfly((3, 8, 8), block_size=3, levels=1, initialisation="rotation").double()
    matrices = layer.product.matrices[0].matrices().detach()
    torch.testing.assert_close(matrices @ matrices.mT, torch.eye(6).double().expand_as(matrices), atol=1e-5, rtol=0)
    assert (torch.linalg.det(matrices) > 0).all()
    assert matrices.mean(0).abs().max() < 0.3
    rotations = random_rotations(2000, 2)  # in two dimensions an angle, uniform on the circle
    angles = torch.atan2(rotations[:, 1, 0], rotations[:, 0, 0]).sort().values
    assert (angles - torch.linspace(-torch.pi, torch.pi, 2000)).abs().max() < 0.3


@pytest.mark.parametrize("squeezed", [False, True])
def test_a_block_is_an_rgb_pixel(squeezed, perturbed):
    """With flatten = pixels and C = 3, one colour affects two whole pixels of the image."""
    shape = (12, 2, 2) if squeezed else (3, 4, 4)
    layer = perturbed(Butterfly, shape, 0.1, block_size=3, flatten="pixels", levels=1, initialisation="rotation")
    image = torch.zeros(1, 3, 4, 4, dtype=torch.float64)
    image[0, 1, 2, 1] = 1
    squeeze = Squeeze((3, 4, 4))
    y = squeeze.inverse(layer(squeeze(image)[0])[0]) if squeezed else layer(image)[0]
    reached = (y[0] != 0).sum(0)
    assert sorted(reached.flatten().tolist()) == [0] * 14 + [3, 3]
    assert reached[2, 1] == 3
    last = perturbed(Butterfly, shape, 0.1, block_size=3, flatten="channels_last", levels=1, initialisation="rotation")
    assert torch.equal(last.dense(), layer.dense()) is not squeezed


def test_partitions_pixels_and_large_events_in_blocks():
    assert make_plan(48, block_size=3, partition=[60, 36], full_depth_at=96, levels=1).sizes == [10, 6]
    with pytest.raises(ValueError, match=re.escape("use sizes that sum to it, such as [24, 12]")):
        make_plan(36, block_size=3, partition=[24, 6])
    assert make_plan(36, block_size=3, partition=[24, 12]).sizes == [8, 4]
    with pytest.raises(UnsupportedShape, match="4 channels are not divisible by block_size = 3"):
        Butterfly((4, 3, 2), block_size=3, flatten="pixels")
    case = LayerCase(Butterfly, (3, 16, 16), options={"block_size": 3}, training=False)
    assert run_check("large-events", case) == []
