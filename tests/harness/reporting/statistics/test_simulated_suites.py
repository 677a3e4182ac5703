"""Tests of simulated suites with planted effects: the share of false verdicts, and that of true differences found.

A suite has a few layers and eight repetitions or seeds; from three seeds on, the correction for all pairs decides. Its
values come from a model in place of trainings, so that the true differences are known. A share over 1,000 suites has a
binomial error; the bounds are those that a correct share of 5 % or 80 % passes with a probability of 99.9 %.
"""

import math
import statistics
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from harness.kinds.claims.verdicts import outcome_of
from harness.reporting.statistics.statistics import (
    SIGNIFICANCE,
    Difference,
    estimate,
    holm,
    interval_kind,
    judged,
    paired_differences,
    student_test,
)

SUITES, LAYERS, REPETITIONS, EVENTS = 1000, 4, 8, 100
LEVEL, POWER, CERTAIN = 0.05, 0.8, 0.999


def bounds(share):
    """Return the ends of the observed shares that a true one has with a probability of 99.9 %."""
    low, high = stats.binom.interval(CERTAIN, SUITES, share)
    return low / SUITES, high / SUITES


def overlapping_splits(share, layers=LAYERS, events=EVENTS, seed=0):
    """Return values (suites, layers, repetitions) of layers that are equal in the population.

    The events of a suite are a sample of the population, and a repetition tests all layers on a random part of them. So
    differences on these events persist in every repetition although there are none in the population.
    """
    draws = np.random.default_rng(seed)
    losses = draws.normal(size=(SUITES, layers, events))
    order = draws.random((SUITES, REPETITIONS, events)).argsort(axis=2)
    tested = (order < share * events).astype(float)
    return losses @ tested.swapaxes(1, 2) / (share * events)


def tuning_noise(seed=0):
    """Return values as above: the tuning of each repetition moves each layer by far more than its seed does."""
    draws = np.random.default_rng(seed)
    shape = SUITES, LAYERS, REPETITIONS
    return draws.normal(0, 0.05, shape) + draws.normal(0, 0.01, shape)


def seeds_alone(seed=0, suites=SUITES, layers=LAYERS, seeds=REPETITIONS):
    """Return values as above, of seeds: part of their noise is shared by all layers."""
    draws = np.random.default_rng(seed)
    return draws.normal(0, 0.05, (suites, 1, seeds)) + draws.normal(0, 0.01, (suites, layers, seeds))


def differences(values):
    """Return the differences (suites, pairs, repetitions) of every two layers."""
    return np.stack([values[:, a] - values[:, b] for a, b in combinations(range(values.shape[1]), 2)], axis=1)


def p_values(values, share):
    """Return the p-values (suites, pairs) of the tests, corrected in each suite."""
    raw, _ = student_test(differences(values), share)
    return np.array([list(holm(dict(enumerate(suite))).values()) for suite in np.sort(raw).tolist()])


def claimed(values, share):
    """Return the share of suites in which a difference is called significant."""
    return float((p_values(values, share).min(axis=1) < SIGNIFICANCE).mean())


def judged_suite(values, share):
    """Return (first, second) -> difference of one suite, by the number of the layer."""
    return paired_differences({str(number): dict(enumerate(row)) for number, row in enumerate(values.tolist())}, share)


def excludes_zero(difference):
    low, high = difference.interval
    return low > 0 or high < 0


def single(sample, share):
    """Return a difference that is tested alone; its own p does not matter."""
    return Difference(estimate(sample, share=share), p=1.0, values=tuple(sample), family=1)


@pytest.fixture(autouse=True)
def no_bootstrap(monkeypatch):
    """Leave out the bootstrap intervals of seeds, which take minutes and decide no test."""
    monkeypatch.setattr("harness.reporting.statistics.statistics._bootstrap", lambda values: (min(values), max(values)))


@pytest.mark.parametrize("share", [0.1, 0.2])
def test_no_difference_is_claimed_where_splits_overlap(share):
    values = overlapping_splits(share)
    assert claimed(values, share) <= bounds(LEVEL)[1]
    assert claimed(values, 0.0) > 3 * LEVEL, "the events of the suite are taken for the population"


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2])
def test_no_difference_is_claimed_from_tuning_noise(share):
    assert claimed(tuning_noise(), share) <= bounds(LEVEL)[1]


def test_no_difference_is_claimed_from_seeds_splits_and_tuning():
    assert claimed(seeds_alone(), None) <= bounds(LEVEL)[1]
    noise = tuning_noise(seed=1) + seeds_alone(seed=2)
    assert claimed(overlapping_splits(0.2) * 0.1 + noise, 0.2) <= bounds(LEVEL)[1]


@pytest.mark.parametrize("share", [0.1, 0.2])
def test_a_single_comparison_has_exactly_its_level(share):
    low, high = bounds(LEVEL)
    assert low <= claimed(overlapping_splits(share, layers=2), share) <= high


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2])
@pytest.mark.parametrize("layers", [2, LAYERS])
def test_the_detectable_difference_is_detected_with_80_percent_power(layers, share):
    """The first layer is truly worse than the second by what is detectable at the true standard deviation."""
    if share:
        values = overlapping_splits(share, layers)
        deviation = math.sqrt(2 / (share * EVENTS) * (1 - share))  # of a difference within the events of a suite
    else:
        values = np.random.default_rng(0).normal(size=(SUITES, layers, REPETITIONS))
        deviation = math.sqrt(2)
    example = judged_suite(values[0], share)["0", "1"]
    assert example.family == math.comb(layers, 2)
    ratio = example.detectable / statistics.stdev(example.values)
    pilot = judged_suite(values[0, :, :3], share)["0", "1"]
    assert pilot.detectable is None
    assert pilot.detectable_with(REPETITIONS) / statistics.stdev(pilot.values) == pytest.approx(ratio)
    values[:, 0] += ratio * deviation
    raw, _ = student_test(differences(values)[:, 0], share)  # of the first two layers
    low, high = bounds(POWER)
    assert low <= (raw < SIGNIFICANCE / example.family).mean() <= high


def test_the_verdicts_of_a_suite_are_those_of_the_simulation():
    for values, share in ((overlapping_splits(0.2), 0.2), (tuning_noise(), 0.0), (seeds_alone(), None)):
        expected = p_values(values[:20], share)
        for suite, p in zip(values[:20], expected, strict=True):
            judged_ones = judged_suite(suite, share).values()
            assert sorted(each.p for each in judged_ones) == pytest.approx(sorted(p))
            assert any(each.significant for each in judged_ones) == (min(p) < SIGNIFICANCE)


@pytest.mark.parametrize("share", [0.1, 0.2])
def test_equivalence_at_its_margin_is_claimed_in_5_percent(share):
    values = overlapping_splits(share, layers=2)
    values[:, 0] += 1.0
    samples = [single(suite, share) for suite in differences(values)[:, 0].tolist()]
    assert statistics.fmean(each.equivalence(1.0) < SIGNIFICANCE for each in samples) <= bounds(LEVEL)[1]
    assert statistics.fmean(each.equivalence(2.5) < SIGNIFICANCE for each in samples) > 0.5


@pytest.mark.parametrize("share", [0.1, 0.2])
def test_intervals_of_means_and_differences_cover_the_population(share):
    values = overlapping_splits(share, layers=2)
    low, high = bounds(1 - LEVEL)
    means = [estimate(row, share=share) for row in values[:, 0].tolist()]
    assert low <= statistics.fmean(each.low <= 0 <= each.high for each in means) <= high
    ends = [single(suite, share).interval for suite in differences(values)[:, 0].tolist()]
    assert low <= statistics.fmean(below <= 0 <= above for below, above in ends) <= high
    without = [estimate(row, share=0.0) for row in values[:, 0].tolist()]
    assert statistics.fmean(each.low <= 0 <= each.high for each in without) < 0.9


def test_the_corrected_test_is_that_of_nadeau_and_bengio():
    """As in their paper, from the numbers of test and training events; the mean and its standard deviation by numpy."""
    values, test, train = np.random.default_rng(3).normal(0.3, 0.2, 10), 150, 600
    error = math.sqrt((1 / 10 + test / train) * values.var(ddof=1))
    reference = stats.t(df=9, loc=values.mean(), scale=error)
    share = test / (test + train)
    [difference] = judged({"a": values.tolist()}, {"a": share}).values()
    assert difference.p_raw == pytest.approx(2 * stats.t.sf(values.mean() / error, 9)) and difference.p_raw > 1e-4
    assert difference.interval == pytest.approx(reference.interval(0.95))
    assert (difference.estimate.low, difference.estimate.high) == difference.interval
    assert difference.effect == pytest.approx(values.mean() / values.std(ddof=1)), "d is of the values, not of the mean"
    assert -difference == judged({"a": (-values).tolist()}, {"a": share})["a"]
    critical = stats.t.ppf(0.975, 9)
    assert stats.nct.sf(critical, 9, difference.detectable / error) == pytest.approx(0.8, abs=1e-4)
    upper, lower = (stats.t.sf((0.7 + sign * values.mean()) / error, 9) for sign in (1, -1))
    assert difference.equivalence(0.7) == pytest.approx(max(upper, lower))


def test_seeds_and_a_fixed_test_split_have_no_correction():
    values = np.random.default_rng(4).normal(0.1, 0.2, 9).tolist()
    expected = stats.ttest_1samp(values, 0.0)
    seeds, fixed = (judged({"a": values}, {"a": share})["a"] for share in (None, 0.0))
    assert seeds.p_raw == fixed.p_raw == pytest.approx(expected.pvalue)
    assert fixed.interval == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert seeds.interval == (min(values), max(values)), "the bootstrap's"


def test_few_repetitions_have_an_interval_and_no_test():
    three, two = (judged({"a": [0.1, 0.2, 0.4][:number]}, {"a": 0.2})["a"] for number in (3, 2))
    assert three.interval is not None and three.p is None and three.detectable is None and three.equivalence(1) is None
    assert two.interval is None and (two.estimate.low, two.estimate.high) == (0.1, 0.2)
    assert three.leads == 0.0 and (-three).leads == 1.0
    assert three.evidence().endswith(f"of 3 repetitions: [{three.interval[0]:+.3f}, {three.interval[1]:+.3f}])")
    with pytest.raises(ValueError, match="test share 1: "):
        judged({"a": [0.1, 0.2, 0.3]}, {"a": 1.0})


def with_a_verdict(rows, seeds, number):
    """Return the share of null suites in which a pair is shown to differ, and see that words and claims agree."""
    shown = 0
    for values in seeds_alone((rows, seeds), number, rows, seeds):
        suite = judged_suite(values, None).values()
        separated = [each.separated for each in suite]
        shown += any(separated)
        if any(separated):
            assert separated == [outcome_of(each) != "open" for each in suite]
            assert seeds >= 8 or separated == [excludes_zero(each) for each in suite]
    return shown / number


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
