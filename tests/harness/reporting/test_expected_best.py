from itertools import product
from statistics import fmean

import numpy as np
import pytest

from harness.reporting.statistics.expected_best import expected_best


def enumerated(values, number):
    """Return the mean of the lowest value over all n-tuples of candidates."""
    return fmean(min(drawn) for drawn in product(values, repeat=number))


@pytest.mark.parametrize("values", [[3.0, 1.0, 2.5, 7.0, -1.0], [2.0, 1.0, 1.0, 5.0], [4.0, 4.0, 4.0], [1.5]])
def test_the_expected_lowest_value_is_the_mean_over_all_tuples(values):
    found = expected_best(values)
    expected = [enumerated(values, number) for number in range(1, len(values) + 1)]
    assert found.mean == pytest.approx(expected, abs=1e-12)


def test_the_band_is_that_of_resampled_candidates():
    values = [3.0, 1.0, 2.5, 7.0, -1.0, 2.0]
    found = expected_best(values)
    assert (found.low <= found.mean).all() and (found.mean <= found.high).all() and (found.low >= -1.0).all()
    assert (np.diff(found.high) < 0).all() and found.high[0] - found.low[0] > 2
    again = expected_best(values[::-1])
    assert (again.low == found.low).all() and (again.high == found.high).all(), "the order of candidates is no matter"
    draws = np.random.default_rng(1)
    by_hand = [enumerated(draws.choice(values, len(values)), 2) for _ in range(3000)]
    assert np.quantile(by_hand, (0.025, 0.975)) == pytest.approx((found.low[1], found.high[1]), abs=0.15)


def test_a_single_candidate_has_no_band():
    found = expected_best([2.0])
    assert found.mean.tolist() == [2.0] and np.isnan([*found.low, *found.high]).all()
