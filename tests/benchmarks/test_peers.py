"""The released code of `peers.py` computes what we compute, so that the table compares equal things."""

import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from harness.timing.operations import perturb
from harness.timing.timing import Measurement, Sample
from layers.butterfly import Butterfly

sys.path.insert(0, str(Path(__file__).parent))  # as when the script runs
import peers
from released_yardstick import EagerButterfly, ReleasedFlow, joined, training_step

EXACT = {"rtol": 1e-9, "atol": 1e-11}


def perturbed(module, scale=0.05):
    """Return the module in double precision, its weights moved off their initial values."""
    perturb(module.double(), scale, torch.Generator().manual_seed(0))
    return module


def draw(*shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=dtype)


def gradients(outputs, leaves):
    """Return the gradients of a sum of all outputs, in which every entry has a different weight."""
    total = sum((y * torch.linspace(1, 2, y.numel(), dtype=y.dtype).view(y.shape)).sum() for y in outputs)
    return torch.autograd.grad(total, leaves)


@pytest.mark.parametrize("shared", [False, True])
def test_the_released_butterfly_equals_ours(shared):
    layer = perturbed(Butterfly((3, 4, 8), levels=4, shared=shared, initialisation="rotation"))
    peer = EagerButterfly(layer)
    x = draw(3, 3, 4, 8).requires_grad_()
    ours, theirs = layer(x), peer(x)
    assert_close(theirs, ours, **EXACT)
    assert_close(peer.inverse(x), layer.inverse(x), **EXACT)
    of_x, *of_levels = gradients(theirs, [x, *peer.weights])
    assert_close([of_x, joined(of_levels)], list(gradients(ours, [x, layer.weight])), **EXACT)


@pytest.mark.parametrize(("case", "layer"), [(c, row) for c in ("image", "mimic") for row in ("conv1x1", "butterfly")])
def test_a_step_of_the_released_flow_equals_ours(case, layer):
    """Compare the loss, the gradients of all weights, and the loss after a step at the same rate."""
    flow, x = peers.model(case, layer, 4, 2)
    flow, x = perturbed(flow), x.double()
    peer = ReleasedFlow(flow)
    step = training_step(peer, x, learning_rate=1e-4)  # ours warms up to 1e-3 in ten steps
    assert_close(step(), peers.our_step(flow, x)()["nats_per_dim"].mean(), **EXACT)
    parts = [module for level in flow.parts() for _, module in level]
    plain_parts = [module for level in peer.levels for module in level]
    for ours, theirs in zip(parts, plain_parts, strict=True):
        gradients = [weight.grad for weight in theirs.parameters()]
        gradients = [joined(gradients)] if isinstance(theirs, EagerButterfly) else gradients
        assert_close(gradients, [weight.grad for weight in ours.parameters()], **EXACT)
    assert_close(step(), -flow.log_prob(x).mean() / flow.dim, rtol=1e-6, atol=0)


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds():
    sides = {"ours": (1e-3, 2e-3, 4e-3), "peer": (2e-3, 8e-3, 12e-3)}
    measured = {side: Measurement(tuple(map(Sample, times)), 1) for side, times in sides.items()}
    row = peers.Row("an operation", print, print)
    assert peers.cells(row, measured, "seconds") == ("an operation", "2.00", "8.00", "3 (2.5 to 3.5)")
