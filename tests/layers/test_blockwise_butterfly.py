import re

import pytest
import torch

from flows import Squeeze
from harness.checking.check_layer import run_check
from harness.checking.layer_case import LayerCase
from layers import UnsupportedShape
from layers.butterflies.plan import make_plan
from layers.butterfly import Butterfly
from layers.linalg.plu import random_rotations


def test_starts_as_rotations():
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
