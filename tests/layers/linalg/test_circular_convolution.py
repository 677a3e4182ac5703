"""The compiled circular convolution, and the log-determinant by frequencies, equal their formulas."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from compared import agree, check_errors, results, with_gradients

from layers.periodic import Periodic

pytestmark = pytest.mark.usefixtures("compiled")

SHAPES = [(1, 1, 1), (2, 4, 4), (3, 5, 4), (2, 1, 9), (2, 9, 1), (7, 3, 21), (13, 6, 5), (2, 35, 34), (1, 6), (4, 61)]


def circular(x, weight, bias, before):
    return torch.ops.invertbench.circular(x, weight, bias, before)


def circular_formula(x, weight, bias, before):
    after = weight.shape[2] - 1 - before
    convolve = F.conv2d if x.ndim == 4 else F.conv1d
    return convolve(F.pad(x, [before, after] * (x.ndim - 2), mode="circular"), weight, bias)


def log_det(layer):
    return torch.ops.invertbench.spectral_log_det(layer.weight, layer._waves(), layer.shape[-1])


def log_det_formula(layer):
    return layer._log_det(layer._spectrum())


def operands(shape, outputs, kernel_size, events=3, dtype=torch.float64):
    """Return events, a weight and a bias."""
    channels, *spatial = shape
    return (
        torch.randn(events, *shape, dtype=dtype),
        torch.randn(outputs, channels, *[kernel_size] * len(spatial), dtype=dtype),
        torch.randn(outputs, dtype=dtype),
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_sizes_of_kernels_and_batches(shape, case):
    for kernel_size, outputs in itertools.product((1, 2, 3, 4), (shape[0], 1, 5)):
        for before in range(kernel_size):
            if max(before, kernel_size - 1 - before) > min(shape[1:]):
                continue
            for events in (1, 3):
                with case(kernel_size=kernel_size, outputs=outputs, before=before, events=events):
                    inputs = operands(shape, outputs, kernel_size, events)
                    agree(circular, circular_formula, inputs, [before], rtol=1e-10, atol=1e-10)


def test_views_empty_batches_and_batches_that_are_summed_in_parts():
    x, weight, bias = operands((4, 6, 7), 4, 3)
    views = x.transpose(2, 3).contiguous().transpose(2, 3), weight.transpose(0, 1), torch.cat([bias, bias])[::2]
    agree(circular, circular_formula, views, [1], seeds=[x[:1, :1, :1, :1].expand_as(x)])
    y, *gradients = results(circular, operands((3, 4, 5), 2, 3, events=0), [1])
    assert y.shape == (0, 2, 4, 5)
    assert not any(gradient.any() for gradient in gradients)
    agree(circular, circular_formula, operands((3, 20, 21), 3, 3, events=150), [1])


@pytest.mark.parametrize(("kernel_size", "before"), [(3, 1), (2, 0), (3, 2)])
def test_second_derivatives_of_the_convolution(kernel_size, before, check_derivatives):
    check_derivatives(lambda *inputs: circular(*inputs, before), *operands((2, 3, 4), 2, kernel_size, events=2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_non_finite_values_stay_in_their_example(dtype):
    x, weight, bias = operands((3, 9, 10), 3, 3, events=4, dtype=dtype)
    whole = circular(x, weight, bias, 1)
    x[1, 0, 0, 0], x[2, 1, 8, 9] = torch.nan, torch.inf
    y = circular(x, weight, bias, 1)
    assert torch.equal(y[[0, 3]], whole[[0, 3]])
    reached = [(row % 9, column % 10) for row in (-1, 0, 1) for column in (-1, 0, 1)]
    expected = torch.zeros(9, 10, dtype=torch.bool)
    for place in reached:
        expected[place] = True
    assert torch.equal(y[1].isnan().all(0), expected)
    assert torch.equal(y[1].isnan().any(0), expected)


@pytest.mark.parametrize(("shape", "kernel_size"), [((3, 32, 32), 3), ((12, 16, 16), 3), ((4, 512), 51)])
def test_error_in_single_precision(shape, kernel_size):
    inputs = operands(shape, shape[0], kernel_size, events=64, dtype=torch.float32)
    check_errors(circular, circular_formula, inputs, [kernel_size // 2])


def test_the_same_for_any_number_of_threads(same_by_threads, perturbed):
    inputs = operands((3, 32, 32), 3, 3, events=70, dtype=torch.float32)
    layer = perturbed(Periodic, (8, 16, 16), 0.5).float()
    same_by_threads(lambda: results(circular, inputs, [1]) + with_gradients(log_det(layer), [layer.weight]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(2, 3, 4, 4)}, r"\[2, 3, 4, 4\].* 2 channels"),
        ({"x": torch.zeros(2, 2, 4)}, r"weight of shape \[2, 2, 3, 3\] does not fit"),
        ({"x": torch.zeros(2, 2, 1, 4), "before": 2}, "padding not larger"),
        ({"weight": torch.zeros(2, 2, 3, 1), "before": 0}, "sizes must be equal"),
        ({"before": 3}, "3 of it before"),
        ({"bias": torch.zeros(3)}, "bias"),
    ],
)
def test_operands_that_do_not_fit_are_refused(change, message):
    inputs = {"x": torch.zeros(2, 2, 4, 4), "weight": torch.zeros(2, 2, 3, 3), "bias": None, "before": 1} | change
    with pytest.raises(ValueError, match=message):
        circular(**inputs)


def test_gradients_of_other_events_and_waves_of_another_kernel_are_refused(perturbed):
    with pytest.raises(ValueError, match=r"\[2, 2, 4, 5\] do not fit events of shape \[2, 2, 4, 4\]"):
        torch.ops.invertbench.circular_weight(torch.zeros(2, 2, 4, 4), torch.zeros(2, 2, 4, 5), [3, 3], 1)
    layer = perturbed(Periodic, (2, 4, 4), 0.5, kernel_size=3)
    with pytest.raises(ValueError, match="do not fit a weight of shape"):
        torch.ops.invertbench.spectral_log_det(layer.weight[:, :, :2], layer._waves(), 4)


@pytest.mark.parametrize("shape", SHAPES)
def test_log_det_of_all_sizes(shape, case, perturbed):
    for kernel_size in (1, 2, 3, 4):
        with case(kernel_size=kernel_size):
            layer = perturbed(Periodic, shape, 0.5, kernel_size=kernel_size)
            both = (with_gradients(each(layer), [layer.weight]) for each in (log_det, log_det_formula))
            torch.testing.assert_close(*both, rtol=1e-9, atol=1e-9)


def test_rows_of_the_log_det_must_be_exchanged(perturbed):
    layer = perturbed(Periodic, (3, 4, 4), 0.5, kernel_size=1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1e-20, 2.0, 0], [0, 0, 3.0], [4.0, 1.0, 0]])[:, :, None, None])
    value = log_det(layer)
    torch.testing.assert_close(value.item(), 16 * math.log(24))
    (gradient,) = torch.autograd.grad(value, layer.weight)
    torch.testing.assert_close(gradient[:, :, 0, 0], 16 * layer.weight[:, :, 0, 0].detach().inverse().T)
    layer = perturbed(Periodic, (2, 3, 4), 0.5, kernel_size=1)
    with torch.no_grad():
        layer.weight.zero_()
    value = log_det(layer)
    assert value.item() == -torch.inf
    assert not torch.autograd.grad(value, layer.weight)[0].isfinite().any()


def test_second_derivatives_of_the_log_det(check_derivatives, perturbed):
    for shape in ((2, 3, 4), (2, 4, 3), (3, 5)):
        layer = perturbed(Periodic, shape, 0.5, kernel_size=3)

        def call(weight, layer=layer):
            return torch.ops.invertbench.spectral_log_det(weight, layer._waves(), layer.shape[-1])

        check_derivatives(call, layer.weight)


def test_error_of_the_log_det_in_single_precision(perturbed):
    layer = perturbed(Periodic, (8, 16, 16), 0.5).float()
    exact = Periodic((8, 16, 16)).double()
    exact.load_state_dict(layer.state_dict())
    with torch.no_grad():
        truth, ours, library = (
            float(value) for value in (log_det_formula(exact), log_det(layer), log_det_formula(layer))
        )
    assert abs(ours - truth) <= 2 * abs(library - truth) + torch.finfo(torch.float32).eps * abs(truth)


def test_the_operators_run_where_they_are_faster(monkeypatch):
    called = []
    for name in ("circular", "spectral_log_det"):
        real = getattr(torch.ops.invertbench, name)
        monkeypatch.setattr(
            torch.ops.invertbench, name, lambda *call, name=name, real=real: called.append(name) or real(*call)
        )
    expected = {
        ((3, 8, 8), 3): ["circular", "spectral_log_det"],
        ((2, 2, 2), 3): ["circular", "spectral_log_det"],
        ((4, 64), 51): ["circular"],  # too many taps for sums over them
        ((27, 4, 4), 3): ["spectral_log_det"],
        ((28, 4, 4), 3): [],
        ((12, 32, 32), 3): ["circular"],
        ((2, 2, 2), 4): ["circular", "spectral_log_det"],
        ((2, 1, 4), 4): [],  # the kernel wraps around twice
    }
    for (shape, kernel_size), operators in expected.items():
        called.clear()
        Periodic(shape, kernel_size=kernel_size)(torch.randn(2, *shape))
        assert called == operators, shape
