"""Cleaning of waveforms, compared with its definitions sample by sample."""

import itertools

import numpy as np
import pytest

from harness.datasets._signals.waveform_filters import band_pass, flat_line_shares, flat_peak_shares, spread_over_cells

RATE = 125.0
BAND = (0.5, 8.0)


def runs(row):
    """Return (first, last + 1, value) of each run of equal samples."""
    first = 0
    for value, group in itertools.groupby(row):
        last = first + len(list(group))
        yield first, last, value
        first = last


def line_share(values, begin, length, at_least):
    shares = []
    for row in values:
        inside = [s for a, b, _ in runs(row) if b - a >= at_least for s in range(a, b) if begin <= s < begin + length]
        shares.append(len(inside) / length)
    return max(shares)


def peak_share(values, begin, length, at_least):
    shares = []
    for row in values:
        kinds = {"peak": [], "valley": []}
        levels = list(runs(row))
        for (_, _, before), (a, b, value), (_, _, after) in zip(levels, levels[1:], levels[2:], strict=False):
            if begin <= a < begin + length:
                if before < value > after:
                    kinds["peak"].append(b - a >= at_least)
                elif before > value < after:
                    kinds["valley"].append(b - a >= at_least)
        shares += [np.mean(flat) if flat else 1.0 for flat in kinds.values()]
    return max(shares)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("at_least", [2, 5])
def test_shares_match_the_definition(seed, at_least):
    rng = np.random.default_rng(seed)
    steps = rng.integers(-1, 2, (2, 600)) * (rng.random((2, 600)) < 0.4)
    values = np.cumsum(steps, axis=1).astype(np.int16)
    begins = np.array([0, 1, 100, 333, 536])
    for share, expected in ((flat_line_shares, line_share), (flat_peak_shares, peak_share)):
        shares = share(values, begins, 64, at_least)
        np.testing.assert_allclose(shares, [expected(values, begin, 64, at_least) for begin in begins])


def test_flat_peaks_of_clipped_pulses_and_of_constant_windows():
    pulse = np.round(100 * np.sin(np.arange(1000) / 8)).astype(np.int16)
    clipped = np.minimum(pulse, 80)
    begins = np.array([0])
    assert flat_peak_shares(np.stack([pulse, pulse]), begins, 1000, 5) == [0]
    assert flat_peak_shares(np.stack([pulse, clipped]), begins, 1000, 5) == [1]
    assert flat_peak_shares(np.stack([pulse, -clipped]), begins, 1000, 5) == [1]
    assert flat_peak_shares(np.stack([pulse, np.zeros_like(pulse)]), begins, 1000, 5) == [1]


def test_differences_of_small_integers_do_not_overflow():
    values = np.array([[-30_000, -29_000, -30_000, 30_000, 30_000, -30_000, 0]], dtype=np.int16)
    assert flat_peak_shares(values, np.array([0]), 7, 2).tolist() == [0.5]


def test_noise_fills_the_cell_and_depends_on_seed_and_position():
    values = np.arange(-5000, 5000).reshape(2, 5000)
    spread = spread_over_cells(values, seed=1, start=7)
    np.testing.assert_array_equal(np.floor(spread), values)
    noise = spread - values
    assert abs(noise.mean() - 0.5) < 0.01 and noise.min() < 0.01 and noise.max() > 0.99
    assert abs(np.corrcoef(noise)[0, 1]) < 0.05
    np.testing.assert_array_equal(spread, spread_over_cells(values, seed=1, start=7))
    for seed, start in ((2, 7), (1, 8)):
        assert abs(np.corrcoef(noise[0], (spread_over_cells(values, seed, start) - values)[0])[0, 1]) < 0.05


def gain(frequency, order=4):
    """Return the gain of a band-pass for a long sine, measured in its middle."""
    times = np.arange(10_000) / RATE
    filtered = band_pass(np.sin(2 * np.pi * frequency * times)[None], RATE, BAND, order)[0, 3000:7000]
    return np.sqrt(2 * np.mean(filtered**2))


def formula(frequency, order=4):
    """Return |H| of the analogue filter at the frequencies of the bilinear transform."""
    warped, low, high = (np.tan(np.pi * f / RATE) for f in (frequency, *BAND))
    return (1 + ((warped**2 - low * high) / (warped * (high - low))) ** (2 * order)) ** -0.5


@pytest.mark.parametrize("frequency", [0.3, 0.5, 1.2, 4.0, 8.0, 12.0])
@pytest.mark.parametrize("order", [2, 4])
def test_the_gain_is_that_of_a_butterworth_filter_squared_in_both_directions(frequency, order):
    assert gain(frequency, order) == pytest.approx(formula(frequency, order) ** 2, abs=2e-3)


def test_forward_and_backward_filtering_has_no_delay():
    values = np.exp(-0.5 * ((np.arange(2001) - 1000) / 10.0) ** 2)[None]
    there = band_pass(values, RATE, BAND, 4)[0]
    np.testing.assert_allclose(there, there[::-1], atol=2e-6)  # of 0.7, by the order of the two passes
    assert there.argmax() == 1000


def test_the_shortest_stretch_can_be_filtered():
    assert band_pass(np.random.default_rng(0).normal(size=(2, 16)), RATE, BAND, 4).shape == (2, 16)
