"""From three seeds on the correction for all pairs of a family decides, and an interval never contradicts it."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from harness.kinds.claims.verdicts import outcome_of
from harness.reporting.statistics.statistics import interval_kind, judged, paired_differences

LEVEL, SUITES, CERTAIN = 0.05, 1000, 0.999


@pytest.fixture(autouse=True)
def no_bootstrap(monkeypatch):
    """Leave out the bootstrap intervals of seeds, which take minutes and decide no test."""
    monkeypatch.setattr("harness.reporting.statistics.statistics._bootstrap", lambda values: (min(values), max(values)))


def null_suites(rows, seeds, number):
    """Yield the comparisons of suites whose rows are equal in truth; part of their noise is shared by all rows."""
    draws = np.random.default_rng((rows, seeds))
    values = draws.normal(0, 0.05, (number, 1, seeds)) + draws.normal(0, 0.01, (number, rows, seeds))
    for suite in values.tolist():
        yield paired_differences({str(row): dict(enumerate(of_row)) for row, of_row in enumerate(suite)})


def with_a_verdict(rows, seeds, number):
    """Return the share of null suites in which a pair is shown to differ, and see that words and claims agree."""
    shown = 0
    for suite in null_suites(rows, seeds, number):
        separated = [each.separated for each in suite.values()]
        shown += any(separated)
        if any(separated):
            assert separated == [outcome_of(each) != "open" for each in suite.values()]
            assert seeds >= 8 or separated == [excludes_zero(each) for each in suite.values()]
    return shown / number


def excludes_zero(difference):
    low, high = difference.interval
    return low > 0 or high < 0


@pytest.mark.parametrize(("rows", "seeds"), [(2, 3), (5, 3), (5, 8)])
def test_few_null_suites_have_a_verdict(rows, seeds):
    number = 200
    assert with_a_verdict(rows, seeds, number) <= stats.binom.ppf(CERTAIN, number, LEVEL) / number


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rows", [2, 5, 8])
def test_below_6_percent_of_null_suites_have_a_verdict_at_any_number_of_seeds(rows):
    assert max(with_a_verdict(rows, seeds, SUITES) for seeds in range(3, 17)) < 0.06


def families():
    """Yield families of samples of three to ten seeds, some of which are far from zero."""
    draws = np.random.default_rng(5)
    for _ in range(60):
        sizes = draws.integers(3, 11, draws.integers(1, 9))
        shifts = draws.choice([0.0, 1.0, 5.0, 20.0], len(sizes))
        yield {key: draws.normal(shifts[key], 1.0, size).tolist() for key, size in enumerate(sizes)}


def test_the_verdict_is_holms_and_the_interval_of_few_seeds_excludes_zero_only_then():
    steps = set()
    for samples in families():
        raw = {key: stats.ttest_1samp(sample, 0.0).pvalue for key, sample in samples.items()}
        order, corrected = sorted(raw, key=raw.get), 0.0
        for place, key in enumerate(order):
            corrected = max(corrected, (len(raw) - place) * raw[key])
            each = judged(samples)[key]
            assert each.separated == (corrected < LEVEL) and each.family == len(samples)
            if len(samples[key]) < 8:
                assert excludes_zero(each) == each.separated and each.p is each.p_raw is each.effect is None
                alone = stats.ttest_1samp(samples[key], 0.0).confidence_interval(1 - LEVEL / each.step)
                assert each.interval == pytest.approx((alone.low, alone.high))
                assert (-each).interval == pytest.approx((-alone.high, -alone.low))
                steps.add((each.step, len(samples) - place))
            else:
                assert each.p == pytest.approx(min(1.0, corrected)) and each.step == 1
    assert any(step == place for step, place in steps) and any(step > place > 1 for step, place in steps)


@pytest.mark.parametrize("seeds", [3, 7, 8])
def test_equal_differences_are_certain_at_any_number_of_seeds(seeds):
    pairs = judged({"none": [0.0] * seeds, "all": [-0.5] * seeds, "noise": [0.1, -0.2, 0.3] * 2 + [0.2] * (seeds - 6)})
    assert [each.separated for each in pairs.values()] == [False, True, False]
    assert pairs["none"].interval == (0.0, 0.0) and pairs["all"].interval == (-0.5, -0.5)
    assert pairs["all"].effect is None
    assert [pairs[name].p for name in ("none", "all")] == ([1.0, 0.0] if seeds >= 8 else [None, None])


def test_repetitions_have_the_variance_of_overlapping_splits_and_the_same_correction():
    rows = {name: dict(enumerate(np.random.default_rng(number).normal(size=5))) for number, name in enumerate("abc")}
    for share, words in ((0.2, "Holm-adjusted corrected"), (None, "Holm-adjusted Student's")):
        pairs = paired_differences(rows, share)
        assert interval_kind(pairs.values()) == words and not any(each.separated for each in pairs.values())
        for (first, second), each in pairs.items():
            values = [rows[first][seed] - rows[second][seed] for seed in range(5)]
            error = math.sqrt((1 / 5 + (0.25 if share else 0.0)) * np.var(values, ddof=1))
            assert each.interval == pytest.approx(stats.t.interval(1 - LEVEL / 3, 4, np.mean(values), error))
    assert len(pairs) == len(list(combinations(rows, 2)))
    pairs = judged({"one": [1.0], "two": [1.0, 1.0], "three": [1.0, 1.1, 0.9]})
    assert [each.separated for each in pairs.values()] == [False, False, True]
    assert pairs["three"].step == 1 and pairs["two"].interval is None, "pairs without a test are in no family"
