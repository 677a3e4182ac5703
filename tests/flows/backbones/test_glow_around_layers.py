"""The backbone around the real layers."""

from functools import partial

import pytest
import torch

from flows import Glow
from layers import LAYERS, UnsupportedShape, free_parameters

PUBLISHED = {  # parameters on MIMIC-III: ButterflyFlow (ICML 2022); without the entries that a mask hides
    "conv1x1": (64, {}, 36_032, 35_952),
    "emerging": (64, {"kernel_size": 51}, 42_576, 39_248),
    "periodic": (64, {"kernel_size": 51}, 39_312, 39_232),
    "woodbury": (64, {"rank_channels": 8, "rank_space": 4}, 48_576, 48_496),
    "butterfly": (16, {"levels": 10, "full_depth_at": 2048, "shared": True}, 15_280, 15_200),
}


def around(name, shape, options, make=None, **settings):
    layer = LAYERS[name]
    mixer = None if layer.replaces_mixer else LAYERS["conv1x1"]
    return Glow(shape, partial(make or layer, **options), mixer, **settings)


@pytest.mark.parametrize("shape", [(3, 4, 8), (2, 16)])
@pytest.mark.parametrize("name", sorted(LAYERS))
def test_flow_around_a_layer_is_a_bijection_with_its_log_det(name, shape, perturb, check_bijection, build_layer):
    flow = around(name, shape, {}, partial(build_layer, name), levels=2, steps=1, width=4, prior="learned")
    perturb(flow, 0.1)
    check_bijection(flow, torch.randn(1, *shape, dtype=torch.float64))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_counts(name):
    width, options, parameters, masked_free = PUBLISHED[name]
    flow = around(name, (2, 1024), options, levels=2, steps=2, width=width)
    assert sum(parameter.numel() for parameter in flow.parameters()) == parameters
    assert free_parameters(flow) == masked_free


def test_a_layer_under_test_is_initialised_once_on_what_arrives_at_it():
    class Standardises(LAYERS["scale"]):
        seen = 0

        def initialise(self, x):
            type(self).seen += 1
            self.arrived = x

    flow = Glow((1, 8, 8), Standardises, LAYERS["conv1x1"], levels=2, steps=2, width=4)
    x = torch.randn(16, 1, 8, 8)
    flow.initialise(x)
    assert Standardises.seen == 4
    layers = [(module, value) for path, module, value in flow.trace(x) if path.endswith("/layer")]
    for layer, value in layers:
        assert not layer.arrived.requires_grad and torch.equal(layer.arrived, value)


def test_the_error_of_a_layer_that_refuses_a_level_is_raised():
    with pytest.raises(UnsupportedShape, match="butterfly"):
        around("butterfly", (1, 8, 8), {"levels": 30}, levels=1, steps=1, width=4)
