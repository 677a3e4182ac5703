"""The yardsticks of `peers.py` compute what we compute, so that the table compares equal things."""

import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from harness.timing.operations import perturb
from harness.timing.timing import Measurement, Sample
from layers.butterfly import Butterfly
from layers.emerging import Emerging
from layers.kernels.build import BuildFailed, find_compiler
from layers.periodic import Periodic

sys.path.insert(0, str(Path(__file__).parent))  # as when the script runs
import emerging_yardstick
import multiply_yardstick
import peers
import periodic_yardstick
import processes
import profile_step
from released_yardstick import EagerButterfly, ReleasedFlow, joined, training_step

EXACT = {"rtol": 1e-9, "atol": 1e-11}


def perturbed(module, scale=0.05):
    """Return the module in double precision, its weights moved off their initial values."""
    perturb(module.double(), scale, torch.Generator().manual_seed(0))
    return module


def draw(*shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=dtype)


def gradients(outputs, leaves):
    """Return the gradients of a sum of all outputs, in which every entry has a weight of its own."""
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


def test_the_plain_formulas_of_the_periodic_layer_equal_it():
    for shape in ((2, 5, 6), (3, 4, 7)):
        layer = perturbed(Periodic(shape))
        x = draw(2, *shape).requires_grad_()
        ours, theirs = layer(x), periodic_yardstick.forward(layer, x)
        assert_close(theirs, ours, **EXACT)
        leaves = [x, *layer.parameters()]
        assert_close(gradients(theirs, leaves), gradients(ours, leaves), **EXACT)


@pytest.mark.parametrize(("case", "layer"), [(c, row) for c in ("image", "mimic") for row in ("conv1x1", "butterfly")])
def test_a_step_of_the_released_flow_equals_ours(case, layer):
    """Compare the loss, the gradients of all weights, and the loss after a step at the same rate."""
    flow, x = profile_step.model(case, layer, 4, 2)
    flow, x = perturbed(flow), x.double()
    peer = ReleasedFlow(flow)
    step = training_step(peer, x, learning_rate=1e-4)  # ours warms up to 1e-3 in ten steps
    assert_close(step(), peers.our_step(flow, x)()["nats_per_dim"].mean(), **EXACT)
    parts = [module for level in flow.parts() for _, module in level]
    plain_parts = [module for level in peer.levels for module in level]
    for ours, theirs in zip(parts, plain_parts, strict=True):
        found = [weight.grad for weight in theirs.parameters()]
        found = [joined(found)] if isinstance(theirs, EagerButterfly) else found
        assert_close(found, [weight.grad for weight in ours.parameters()], **EXACT)
    assert_close(step(), -flow.log_prob(x).mean() / flow.dim, rtol=1e-6, atol=0)


@pytest.fixture
def compiler():
    try:
        find_compiler()
    except BuildFailed as error:
        pytest.skip(f"{error}")


@pytest.mark.system
def test_the_multiplication_in_cpp_equals_our_butterfly(compiler):
    layer = perturbed(Butterfly((3, 4, 8), levels=5, initialisation="rotation")).float()
    x = draw(2, 3, 4, 8, dtype=torch.float32).requires_grad_()
    weight = multiply_yardstick.stacked_weight(layer).requires_grad_()
    events = multiply_yardstick.stacked_events(x.detach(), levels=5).requires_grad_()
    seed = draw(2, 3, 4, 8, dtype=torch.float32).flip(0)
    ours, theirs = layer(x)[0], multiply_yardstick.build()(weight, events)
    assert_close(theirs, multiply_yardstick.stacked_events(ours, levels=5))
    of_x, of_weight = torch.autograd.grad(ours, [x, layer.weight], seed)
    theirs = torch.autograd.grad(theirs, [events, weight], multiply_yardstick.stacked_events(seed, levels=5))
    assert_close(theirs[0], multiply_yardstick.stacked_events(of_x, levels=5))
    layer.weight.data = of_weight
    assert_close(theirs[1], multiply_yardstick.stacked_weight(layer))


@pytest.mark.system
def test_the_scalar_loop_inverts_emerging(compiler):
    scalar = emerging_yardstick.build()
    for shape, kernel_size in (((3, 5, 6), 3), ((2, 9), 5)):
        layer = perturbed(Emerging(shape, kernel_size=kernel_size))
        y = draw(2, *shape)
        assert_close(scalar(layer, y), layer.inverse(y), **EXACT)


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds():
    sides = {"ours": (1e-3, 2e-3, 4e-3), "peer": (2e-3, 8e-3, 12e-3)}
    measured = {side: Measurement(tuple(map(Sample, times)), 1) for side, times in sides.items()}
    row = peers.Row("an operation", 1.5, print, print)
    assert peers.cells(row, measured, "seconds") == ("an operation", "2.00", "8.00", "3 (2.5 to 3.5)", "1.5")


def test_the_time_outside_of_trials_and_of_training():
    assert processes.covered([(0, 2), (5, 6), (1, 3), (1, 2)]) == 4
    tuned = {"seconds": 5.0, "rows": [{"train_seconds": 3.0}, {"train_seconds": 1.0}]}
    assert processes.outside_training([tuned, {"seconds": 9.0, "rows": [{"median_ms": 1.0}]}]) == (5.0, 1.0)
