"""The backbone around the real layers."""

from functools import partial

import pytest
import torch

from flows import Glow
from layers import LAYERS, UnsupportedShape


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
