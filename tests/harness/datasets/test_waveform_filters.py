"""Flat lines of waveforms, compared with their definition sample by sample, and noise over the cells."""

import itertools

import numpy as np
import pytest

from harness.datasets._signals.windows import flat_line_shares, spread_over_cells


def line_share(values, begin, length):
    shares = []
    for row in values:
        inside, first = [], 0
        for _, group in itertools.groupby(row):
            last = first + len(list(group))
            inside += [s for s in range(first, last) if last - first >= 15 and begin <= s < begin + length]
            first = last
        shares.append(len(inside) / length)
    return max(shares)


@pytest.mark.parametrize("seed", range(5))
def test_shares_match_the_definition(seed):
    rng = np.random.default_rng(seed)
    steps = rng.integers(-1, 2, (2, 600)) * (rng.random((2, 600)) < 0.1)
    values = np.cumsum(steps, axis=1).astype(np.int16)
    begins = np.array([0, 1, 100, 333, 536])
    expected = [line_share(values, begin, 64) for begin in begins]
    np.testing.assert_allclose(flat_line_shares(values, begins, 64), expected)
    assert any(expected)


def test_noise_fills_the_cell_and_depends_on_the_position():
    values = np.arange(-5000, 5000).reshape(2, 5000)
    spread = spread_over_cells(values, start=7)
    np.testing.assert_array_equal(np.floor(spread), values)
    noise = spread - values
    assert abs(noise.mean() - 0.5) < 0.01 and noise.min() < 0.01 and noise.max() > 0.99
    assert abs(np.corrcoef(noise)[0, 1]) < 0.05
    np.testing.assert_array_equal(spread, spread_over_cells(values, start=7))
    assert abs(np.corrcoef(noise[0], (spread_over_cells(values, 8) - values)[0])[0, 1]) < 0.05
