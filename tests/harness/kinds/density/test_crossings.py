"""Crossings of singular matrices during training."""

import pytest
import torch

from harness.core.settings import FlowSettings, LayerRef
from harness.kinds.density.crossings import LARGEST, Crossings
from harness.pipeline.models import build_flow
from harness.training.updates import layers_under_test


def started(flow):
    crossings = Crossings()
    crossings.start(flow)
    return crossings


def watched(layer, shape=(1, 4, 4), **options):
    row = LayerRef(row=layer, layer=layer, options=tuple(sorted(options.items())))
    flow = build_flow(shape, row, FlowSettings(levels=1, steps=1, width=4, mixer="plu"), seed=0)
    [(_, inner)] = layers_under_test(flow)
    return flow, inner


def test_only_planted_crossings_are_counted_and_a_restored_state_goes_on():
    flow, layer = watched("butterfly", levels=2, initialisation="rotation")
    watch = started(flow)
    with torch.no_grad():
        layer.weight.mul_(0.5)  # closer to singular, without a change of sign
    watch.on_step()
    assert watch.crossings == 0
    with torch.no_grad():  # two at once: the determinant of the product keeps its sign
        layer.weight[0, :, :2].neg_()
    watch.on_step()
    assert watch.crossings == 2
    watch.on_step()
    assert watch.crossings == 2, "a crossing is the step's, not the side's"
    flow, layer = watched("butterfly", levels=2)
    watch, restored = started(flow), started(flow)
    for _ in range(2):  # there and back
        with torch.no_grad():
            layer.weight[0, :, 0].neg_()
        watch.on_step()
    restored.load_state_dict(watch.state_dict())
    restored.on_step()
    assert restored.crossings == 2
    flow, layer = watched("butterfly", levels=2)  # the identity
    assert started(flow).smallest_singular_value() == pytest.approx(1.0)
    with torch.no_grad():
        layer.weight[:, :, 0] *= 1e-3  # one pair of the first factor
    assert started(flow).smallest_singular_value() == pytest.approx(1e-3, rel=1e-4)


def test_a_1x1_is_watched_by_its_channel_matrix_and_large_layers_are_not():
    """The determinant of the whole map would be positive for an even number of positions."""
    flow, layer = watched("conv1x1", parameterisation="dense")
    assert layer.shape == (4, 2, 2)
    watch = started(flow)
    with torch.no_grad():
        layer.weight[0].neg_()
    watch.on_step()
    assert watch.crossings == 1
    flow, layer = watched("butterfly", (1, 48, 48), levels=2)
    assert layer.dim > LARGEST
    watch = started(flow)
    watch.on_step()
    assert watch.crossings == 0
