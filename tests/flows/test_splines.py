"""Splines: the values of nflows and zuko, the inverse, monotonicity and log-slopes, in float32 at extreme inputs."""

import math

import pytest
import torch

from flows.splines import BOUND, Affine, Spline, make_map

BINS = 6
ROUNDING = 2e-6  # 17 units of rounding of float32 at 1, eight at the bound


def raw_numbers(count, spread, bins=BINS):
    return spread * torch.randn(count, 3 * bins - 1, dtype=torch.float64)


def edges(spline, raw):
    """Return inputs at and beside the knots, at the bound, beyond it, and near 0, (inputs, N), for `raw` (N, size)."""
    knots = torch.cat([places.T for places in spline.knots(raw)[:2]])
    beside = [knots, knots.nextafter(knots + 1), knots.nextafter(knots - 1)]
    single = [0.0, -0.0, 1e-45, -1e-45, BOUND, -BOUND, 1e4, -1e30, 3e38, math.nextafter(BOUND, 4)]
    alone = torch.tensor(single, dtype=raw.dtype)[:, None].expand(-1, len(raw))
    return torch.cat([*beside, alone, 4 * torch.randn(200, len(raw), dtype=raw.dtype)])


@pytest.mark.parametrize(
    "entry_map", [Spline(2), Spline(9), make_map("affine", "bounded", 8)], ids=["2", "9", "affine"]
)
def test_raw_numbers_of_zero_give_the_identity(entry_map):
    x = 2 * torch.randn(300, dtype=torch.float64)
    y, log_slope = entry_map.forward(x, torch.zeros(300, entry_map.size, dtype=torch.float64))
    torch.testing.assert_close(y, x, rtol=1e-13, atol=1e-13)
    assert log_slope.abs().max() < 1e-12


@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0, 1e4, 1e30])
def test_extreme_inputs_in_float32(spread):
    """Map, log-slope and inverse are exact for inputs and outputs a few roundings away, whatever the network returns.

    A slope may change a thousandfold within a rounding of x, so no bound on the differences themselves would hold.
    """
    spline, raw = Spline(BINS), raw_numbers(300, spread).float()
    x = edges(spline, raw).sort(dim=0).values
    raw = raw.expand(len(x), -1, -1)
    y, log_slope = spline.forward(x, raw)
    back = spline.inverse(y, raw)
    assert y.isfinite().all() and log_slope.isfinite().all() and back.isfinite().all()
    outside = x.abs() > BOUND
    for unchanged in (y, back, spline.inverse(x, raw)):
        assert torch.equal(unchanged[outside], x[outside]), "beyond the bound nothing moves"
    assert not log_slope[outside].any()

    exact = Spline(BINS)  # between the knots of float32, computed in float64
    knots = tuple(knot.double() for knot in spline.knots(raw))
    exact.knots = lambda _: knots
    (low, low_slope), (high, high_slope), (_, slope) = (
        exact.forward(x.double() + moved, raw) for moved in (-ROUNDING, ROUNDING, 0.0)
    )
    assert ((low - ROUNDING <= y) & (y <= high + ROUNDING))[~outside].all()
    between = torch.stack([low_slope, high_slope, slope])
    spread_of_slopes = between.amax(0) - between.amin(0)
    assert ((log_slope - slope).abs() <= 2 * spread_of_slopes + 1e-4)[~outside].all()
    apart = x[1:] - x[:-1] > 2 * ROUNDING
    assert (y[1:] - y[:-1] >= -2 * ROUNDING)[apart].all(), "not monotonic"
    before, after = (exact.forward(back.double() + moved, raw)[0] for moved in (-ROUNDING, ROUNDING))
    assert ((before - ROUNDING <= y) & (y <= after + ROUNDING))[~outside].all()


@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0, 1e4])
def test_gradients_are_finite_and_the_log_slope_is_that_of_autograd(spread):
    spline, raw = Spline(BINS), raw_numbers(100, spread)
    for dtype in (torch.float32, torch.float64):
        numbers = raw.to(dtype).requires_grad_()
        x = edges(spline, numbers.detach()).detach().requires_grad_()
        y, log_slope = spline.forward(x, numbers.expand(len(x), -1, -1))
        gradients = torch.autograd.grad(y.sum() + log_slope.sum(), (x, numbers), retain_graph=True)
        assert all(gradient.isfinite().all() for gradient in gradients)
    (slope,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(slope.log(), log_slope, rtol=1e-8, atol=1e-7)


def test_a_bounded_spline_can_be_inverted_in_float32_whatever_the_network_returns():
    spline = make_map("spline", "bounded", 8)
    for spread in (1.0, 30.0, 1e4):
        raw = raw_numbers(300, spread, 8).float()
        x = edges(spline, raw)
        y, log_slope = spline.forward(x, raw.expand(len(x), -1, -1))
        assert log_slope.min() > math.log(2.0e-3) and log_slope.max() < math.log(1 / 2.0e-3)
        back = spline.inverse(y, raw.expand(len(x), -1, -1))
        assert (back - x).abs()[x.abs() <= BOUND].max() < 1e-3


def test_wrong_numbers_of_bins_and_names_are_refused():
    for bins in (1, 501):
        with pytest.raises(ValueError, match="2 to 500 bins"):
            Spline(bins)
    for name, gate in (("cubic", "published"), ("affine", "open")):
        with pytest.raises(ValueError, match="is unknown; use one of"):
            make_map(name, gate, 8)
    assert isinstance(make_map("affine", "published", 8), Affine)
