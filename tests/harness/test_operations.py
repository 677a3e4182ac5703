"""What is timed must be what is claimed: the whole operation, on weights that do something."""

import pytest
import torch
from torch import nn

from harness.settings import TimingSettings
from harness.trials.operations import OPERATIONS, perturb, prepare
from harness.trials.timing import measure
from layers import LAYERS, InvertibleLinear

CPU = torch.device("cpu")


class Counting(InvertibleLinear):
    """y = a * x per channel; counts what is asked of it."""

    def __init__(self, shape):
        super().__init__(shape)
        self.scale = nn.Parameter(torch.ones(self.channels, *[1] * (len(shape) - 1)))
        self.calls = {"forward": 0, "inverse": 0}
        self.grad_modes = []

    def forward(self, x):
        self.calls["forward"] += 1
        self.grad_modes.append(torch.is_grad_enabled())
        return x * self.scale, self.positions * self.scale.abs().log().sum()

    def inverse(self, y):
        self.calls["inverse"] += 1
        self.grad_modes.append(torch.is_grad_enabled())
        return y / self.scale


@pytest.mark.parametrize("name", sorted(LAYERS))
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_layer_can_be_timed(name, operation):
    layer = LAYERS[name]((4, 8, 8))
    call = prepare(layer, 3, operation, dtype=torch.float32, device=CPU)
    call()
    call()  # a graph that is freed by the first call would fail in the second


def test_forward_is_in_grad_mode_and_backward_reaches_every_leaf():
    layer = Counting((2, 3))
    y, log_det = prepare(layer, 5, "forward", dtype=torch.float64, device=CPU)()
    assert y.requires_grad and log_det.requires_grad and layer.grad_modes == [True]
    x_gradient, scale_gradient = prepare(layer, 5, "forward_backward", dtype=torch.float64, device=CPU)()
    assert x_gradient.shape == (5, 2, 3)
    x = prepare(layer, 5, "inverse", dtype=torch.float64, device=CPU)()  # scale is 1: the input itself
    torch.testing.assert_close(scale_gradient.flatten(), x.sum((0, 2)) + 3)  # the 3 positions are the log-det's


def test_inverse_is_without_grad():
    layer = Counting((2, 3))
    assert not prepare(layer, 5, "inverse", dtype=torch.float32, device=CPU)().requires_grad
    assert layer.calls == {"forward": 0, "inverse": 1} and layer.grad_modes == [False]


def test_perturb_moves_every_parameter():
    layer = LAYERS["butterfly"]((4, 8, 8))
    before = {name: value.detach().clone() for name, value in layer.named_parameters()}
    perturb(layer, 0.05, torch.Generator().manual_seed(0))
    assert before and all((value != before[name]).all() for name, value in layer.named_parameters())


def test_measure_alternates_and_counts():
    order = []
    cases = {name: lambda name=name: order.append(name) for name in "ab"}
    results = measure(cases, TimingSettings(warmup=2, rounds=3, min_sample_ms=1e-6), CPU)
    assert [len(result.samples) for result in results.values()] == [3, 3]
    timed = order[-sum(3 * result.calls for result in results.values()) :]
    assert "".join(timed) == ("a" * results["a"].calls + "b" * results["b"].calls) * 3
    assert all(result.peak_bytes is None and result.median_ms > 0 for result in results.values())


def test_median_and_spread():
    from harness.trials.timing import Measurement

    result = Measurement((0.001, 0.002, 0.003, 0.004, 0.1), calls=1, peak_bytes=None)
    assert result.median_ms == pytest.approx(3.0) and result.iqr_ms == pytest.approx(2.0)
    assert Measurement((0.5,), 1, None).iqr_ms == 0.0
