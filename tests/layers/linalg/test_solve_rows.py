"""The compiled solve by rows equals its formula."""

import itertools

import pytest
import torch
from compared import agree, check_errors, results

from layers.macow import MaCow, _solve_above

pytestmark = pytest.mark.usefixtures("compiled")

SHAPES = [(1, 1, 1), (2, 4, 4), (3, 5, 4), (2, 1, 9), (2, 9, 1), (7, 3, 21), (13, 6, 5), (2, 35, 34)]


def solve_rows(y, weight):
    return torch.ops.invertbench.solve_rows(y, weight)


def operands(shape, depth, columns, events=3, dtype=torch.float64):
    """Return images, and a weight whose inverse does not grow."""
    channels = shape[0]
    weight = torch.randn(channels, channels, depth, columns, dtype=dtype) / (2 * channels * depth * columns)
    return torch.randn(events, *shape, dtype=dtype), weight


@pytest.mark.parametrize("shape", SHAPES)
def test_sizes_of_kernels_and_batches(shape, case):
    for depth, columns, events in itertools.product((1, 2, 5), (1, 3, 5), (1, 3)):
        with case(depth=depth, columns=columns, events=events):
            agree(solve_rows, _solve_above, operands(shape, depth, columns, events), rtol=1e-10, atol=1e-10)


def test_views_empty_batches_and_second_derivatives(check_derivatives):
    y, weight = operands((4, 6, 7), 2, 3)
    views = y.transpose(2, 3).contiguous().transpose(2, 3), weight.transpose(0, 1).flip(3)
    agree(solve_rows, _solve_above, views, seeds=[y[:1, :1, :1, :1].expand_as(y)])
    x, *gradients = results(solve_rows, operands((3, 4, 5), 2, 3, events=0))
    assert x.shape == (0, 3, 4, 5)
    assert not any(gradient.any() for gradient in gradients)
    check_derivatives(solve_rows, *operands((2, 3, 4), 2, 3, events=2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_non_finite_values_stay_in_their_example(dtype):
    y, weight = operands((3, 9, 10), 2, 3, events=4, dtype=dtype)
    whole = solve_rows(y, weight)
    y[1, 0, 4, 0] = torch.nan
    x = solve_rows(y, weight)
    assert torch.equal(x[[0, 2, 3]], whole[[0, 2, 3]])
    assert torch.equal(x[1, :, :4], whole[1, :, :4])
    assert x[1, :, 5, :2].isnan().all()
    assert torch.equal(x[1, :, 5, 2:], whole[1, :, 5, 2:])  # two columns away, and one row below


@pytest.mark.parametrize("shape", [(3, 32, 32), (48, 8, 8)])
def test_error_in_single_precision(shape):
    """The gradient of the weight is a library's own."""
    y, weight = operands(shape, 2, 3, events=16, dtype=torch.float32)
    check_errors(solve_rows, _solve_above, [y], [weight])


def test_the_same_for_any_number_of_threads(same_by_threads):
    inputs = operands((3, 32, 32), 2, 3, events=70, dtype=torch.float32)
    same_by_threads(lambda: [solve_rows(*inputs)])


@pytest.mark.parametrize("weight", [(3, 2, 2, 3), (2, 2, 2, 4), (2, 2, 3)])
def test_weights_that_do_not_fit_are_refused(weight):
    with pytest.raises(ValueError, match=r"fit images of shape \[2, 2, 4, 4\]; expected \(C, C, h, k\), odd k"):
        solve_rows(torch.zeros(2, 2, 4, 4), torch.zeros(weight))


def test_other_precisions_are_refused():
    with pytest.raises(TypeError, match="must be float32, or all float64"):
        solve_rows(torch.zeros(2, 2, 4, 4), torch.zeros(2, 2, 2, 3, dtype=torch.float64))


def test_the_operator_runs_for_images(monkeypatch):
    called, real = [], torch.ops.invertbench.solve_rows
    monkeypatch.setattr(torch.ops.invertbench, "solve_rows", lambda *call: called.append(1) or real(*call))
    MaCow((3, 4, 4)).inverse(torch.randn(2, 3, 4, 4))
    assert len(called) == 4
    MaCow((3, 4)).inverse(torch.randn(2, 3, 4))
    assert len(called) == 4
