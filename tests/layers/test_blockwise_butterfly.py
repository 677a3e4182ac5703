import re

import pytest
import torch

from flows import Squeeze
from harness.checking.check_layer import run_check
from harness.checking.layer_case import LayerCase
from layers import UnsupportedShape, free_parameters
from layers.butterflies.plan import make_plan
from layers.butterfly import Butterfly
from layers.linalg.plu import PLUMatrices, random_rotations


def perturbed(shape, scale=0.1, **options):
    torch.manual_seed(0)
    layer = Butterfly(shape, **options).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(scale * torch.randn_like(parameter))
    return layer


def test_large_events_in_blocks():
    case = LayerCase(Butterfly, (3, 16, 16), options={"block_size": 3}, training=False)
    assert run_check("large-events", case) == []


@pytest.mark.parametrize("shared", [False, True])
def test_starts_as_the_identity(shared):
    layer = Butterfly((3, 4, 4), block_size=3, shared=shared)
    x = torch.randn(2, 3, 4, 4)
    y, log_det = layer(x)
    assert torch.equal(y, x)
    assert torch.equal(layer.inverse(x), x)
    assert log_det == 0


def test_starts_as_rotations():
    torch.manual_seed(0)
    layer = Butterfly((3, 8, 8), block_size=3, levels=1, initialisation="rotation").double()
    matrices = layer.product.matrices[0].matrices().detach()
    torch.testing.assert_close(matrices @ matrices.mT, torch.eye(6).double().expand_as(matrices), atol=1e-5, rtol=0)
    assert (torch.linalg.det(matrices) > 0).all()
    assert matrices.mean(0).abs().max() < 0.3
    rotations = random_rotations(2000, 2)  # in two dimensions an angle, uniform on the circle
    assert (
        torch.atan2(rotations[:, 1, 0], rotations[:, 0, 0])
        .sort()
        .values.sub(torch.linspace(-torch.pi, torch.pi, 2000))
        .abs()
        .max()
        < 0.3
    )


def test_counts():
    """(4C + 1) D stored per factor, 2 C D of them free; shared, one matrix for each block of the butterfly."""
    layer = Butterfly((3, 32, 32), levels=2, block_size=3)
    assert sum(p.numel() for p in layer.parameters()) == 2 * 13 * 3072
    assert free_parameters(layer) == 2 * 6 * 3072
    shared = Butterfly((3, 32, 32), levels=3, block_size=3, shared=True)
    assert sum(p.numel() for p in shared.parameters()) == (1 + 2 + 4) * (2 * 36 + 6)
    assert free_parameters(shared) == (1 + 2 + 4) * 36


def test_scalars_keep_their_own_parameters():
    torch.manual_seed(0)
    plain = Butterfly((3, 4), levels=2, initialisation="rotation")
    torch.manual_seed(0)
    of_one = Butterfly((3, 4), levels=2, initialisation="rotation", block_size=1)
    assert list(of_one.state_dict()) == ["weight"]
    assert torch.equal(of_one.weight, plain.weight)


@pytest.mark.parametrize("squeezed", [False, True])
def test_a_block_is_an_rgb_pixel(squeezed):
    """With flatten = pixels and C = 3, one colour affects two whole pixels of the image."""
    shape = (12, 2, 2) if squeezed else (3, 4, 4)
    layer = perturbed(shape, block_size=3, flatten="pixels", levels=1, initialisation="rotation")
    image = torch.zeros(1, 3, 4, 4, dtype=torch.float64)
    image[0, 1, 2, 1] = 1
    squeeze = Squeeze((3, 4, 4))
    y = squeeze.inverse(layer(squeeze(image)[0])[0]) if squeezed else layer(image)[0]
    reached = (y[0] != 0).sum(0)
    assert sorted(reached.flatten().tolist()) == [0] * 14 + [3, 3]
    assert reached[2, 1] == 3
    last = perturbed(shape, block_size=3, flatten="channels_last", levels=1, initialisation="rotation")
    assert torch.equal(last.dense(), layer.dense()) is not squeezed


def test_matrices_set_and_read():
    torch.manual_seed(0)
    wanted = torch.randn(7, 4, 4, dtype=torch.float64)
    held = PLUMatrices(torch.eye(4).expand(7, 4, 4)).double()
    held.set_matrices(wanted)
    torch.testing.assert_close(held.matrices(), wanted)
    torch.testing.assert_close(held.inverse_matrices(), torch.linalg.inv(wanted))
    torch.testing.assert_close(held.log_abs_dets(), torch.linalg.slogdet(wanted)[1])


REFUSED = [
    (
        64,
        {"block_size": 3},
        "D = 64 is not divisible by block_size = 3; use one that divides it, such as block_size: 2",
    ),
    (
        48,
        {"block_size": 3, "partition": [32, 16]},
        "part 32 of the partition cannot be divided by 3 for D = 48 and block_size = 3; "
        "use sizes that are multiples of 3",
    ),
    (
        48,
        {"block_size": 3, "partition": [63, 33], "full_depth_at": 96, "levels": 1},
        "part 63 of the partition cannot be divided by 6 for D = 48 and block_size = 3",
    ),
    (
        48,
        {"block_size": 3, "levels": 5},
        "D = 48, as 16 blocks of 3, has power-of-two part 16, so at most 4 levels; asked for 5. "
        "Use levels: 4 or capped: true",
    ),
    (
        36,
        {"block_size": 3, "levels": 3},
        "D = 36, as 12 blocks of 3, has power-of-two part 4, so at most 2 levels; asked for 3. "
        "Use partition: [24, 12] with levels: [3, 2]",
    ),
    (36, {"block_size": 3, "levels": [1, 3]}, "at most 2 levels; asked for level 3. Use levels from 1 to 2"),
]


@pytest.mark.parametrize(("dim", "options", "message"), REFUSED)
def test_refuses_a_shape(dim, options, message):
    with pytest.raises(UnsupportedShape, match=re.escape(message)):
        make_plan(dim, **options)


def test_a_partition_in_blocks():
    assert make_plan(48, block_size=3, partition=[60, 36], full_depth_at=96, levels=1).sizes == [10, 6]
    with pytest.raises(ValueError, match=re.escape("use sizes that sum to it, such as [24, 12]")):
        make_plan(36, block_size=3, partition=[24, 6])
    assert make_plan(36, block_size=3, partition=[24, 12]).sizes == [8, 4]


def test_refuses_pixels_of_other_channels():
    with pytest.raises(UnsupportedShape, match="4 channels are not divisible by block_size = 3"):
        Butterfly((4, 3, 2), block_size=3, flatten="pixels")
