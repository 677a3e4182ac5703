"""Statistics over seeds and over the candidates of a search."""

import statistics
from itertools import product
from statistics import fmean

import numpy as np
import pytest
from scipy import stats

from harness.reporting.statistics.expected_best import expected_best
from harness.reporting.statistics.statistics import Estimate, estimate, holm, judged, paired_differences, spread_text

VALUES = [2.31, 2.35, 2.29, 2.40, 2.33, 2.30, 2.36, 2.32, 2.31]


def rows(seeds, **shifts):
    """Return rows that share the noise of a seed, each shifted and with a little further noise."""
    noise = np.random.default_rng(1)
    common = noise.normal(0, 1, seeds)
    return {
        name: {seed: float(common[seed] + shift + noise.normal(0, 0.01)) for seed in range(seeds)}
        for name, shift in shifts.items()
    }


def test_an_interval_is_the_bca_bootstrap_and_independent_of_the_order():
    interval = estimate(VALUES)
    assert interval == estimate(VALUES[::-1]) and interval.mean == pytest.approx(statistics.fmean(VALUES))
    reference = stats.bootstrap((VALUES,), np.mean, n_resamples=50_000, method="BCa", rng=np.random.default_rng(9))
    low, high = reference.confidence_interval
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=2e-3)
    assert interval.bars == pytest.approx((interval.mean - interval.low, interval.high - interval.mean))


def test_below_eight_seeds_the_lowest_and_highest_stand_for_an_interval_and_one_seed_has_none():
    assert estimate([2.0, 2.5, 2.1]) == Estimate(pytest.approx(2.2), 2.0, 2.5, 3)
    few, enough = estimate(VALUES[:7]), estimate(VALUES[:8])
    assert (few.low, few.high) == (min(VALUES[:7]), max(VALUES[:7])) and enough.high < max(VALUES[:8])
    assert spread_text([1, 2, 7]) == "lowest, highest" and spread_text([1, 8]) == "95 % bootstrap interval"
    assert spread_text([7, 8]) == "95 % bootstrap interval; below 8 seeds lowest, highest"
    assert estimate([2.0]) == Estimate(2.0, None, None, 1) and estimate([2.0]).bars == (0.0, 0.0)
    assert estimate([2.0] * 9) == Estimate(2.0, 2.0, 2.0, 9)
    alone = judged({"a": [1.0]})["a"]
    assert alone.p is None and alone.effect is None and not alone.significant
    assert estimate([2.0], 0.25).bars == (0.25, 0.25) and estimate([2.0, 3.0], 0.25).standard_error is None


def test_seeds_are_paired():
    """Noise that the rows of a seed share does not hide the difference between rows."""
    difference = paired_differences(rows(8, a=0.0, b=0.1))["a", "b"]
    assert difference.estimate.mean == pytest.approx(-0.1, abs=0.01) and difference.estimate.high < -0.08
    assert difference.significant and difference.effect < -3
    shared = paired_differences({"a": {0: 1.0, 1: 2.0, 2: 9.0}, "b": {2: 1.0, 1: 1.0}})["a", "b"]
    assert shared.estimate.mean == pytest.approx(4.5) and shared.estimate.seeds == 2
    assert paired_differences({"a": {0: 1.0}, "b": {1: 1.0}}) == {}


def test_one_interval_decides_and_is_shown():
    """The bootstrap's from eight seeds on, where the test decides; from three Student's, corrected for both pairs."""
    eight = judged({"apart": [0.1, 0.12, 0.09, 0.11, 0.1, 0.13, 0.08, 0.1], "alike": [0.1, -0.1] * 4})
    few = judged({"apart": [0.1, 0.11, 0.09], "alike": [0.1, 0.5, 2.4], "two": [0.1, 0.1]})
    assert [each.separated for each in (*eight.values(), *few.values())] == [True, False, True, False, False]
    assert eight["apart"].interval == (eight["apart"].estimate.low, eight["apart"].estimate.high)
    assert few["two"].interval is None and few["two"].text() == "+0.100"
    assert few["apart"].text() == few["apart"].short() == "+0.100 [+0.064, +0.136]"
    assert eight["apart"].short().endswith("], p < 0.001") and eight["apart"].text().endswith("], p < 0.001, d 6.5")


def enumerated(values, number):
    """Return the mean of the lowest value over all n-tuples of candidates."""
    return fmean(min(drawn) for drawn in product(values, repeat=number))


@pytest.mark.parametrize("values", [[3.0, 1.0, 2.5, 7.0, -1.0], [2.0, 1.0, 1.0, 5.0], [4.0, 4.0, 4.0], [1.5]])
def test_the_expected_lowest_value_is_the_mean_over_all_tuples(values):
    best = expected_best(values)
    expected = [enumerated(values, number) for number in range(1, len(values) + 1)]
    assert best.mean == pytest.approx(expected, abs=1e-12)


def test_the_band_is_that_of_resampled_candidates():
    values = [3.0, 1.0, 2.5, 7.0, -1.0, 2.0]
    best = expected_best(values)
    assert (best.low <= best.mean).all() and (best.mean <= best.high).all() and (best.low >= -1.0).all()
    assert (np.diff(best.high) < 0).all() and best.high[0] - best.low[0] > 2
    again = expected_best(values[::-1])
    assert (again.low == best.low).all() and (again.high == best.high).all(), "the order of candidates is no matter"
    draws = np.random.default_rng(1)
    by_hand = [enumerated(draws.choice(values, len(values)), 2) for _ in range(3000)]
    assert np.quantile(by_hand, (0.025, 0.975)) == pytest.approx((best.low[1], best.high[1]), abs=0.15)
    best = expected_best([2.0])
    assert best.mean.tolist() == [2.0] and np.isnan([*best.low, *best.high]).all()


def test_a_corrected_p_value_is_no_smaller_than_those_of_stronger_effects():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.5}) == pytest.approx(
        {"a": 0.04, "c": 0.09, "b": 0.09, "d": 0.5}
    )
    assert holm({"a": 0.7, "b": 0.6}) == {"b": 1.0, "a": 1.0}
