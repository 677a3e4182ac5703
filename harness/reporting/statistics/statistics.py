"""Statistics over seeds or repetitions: means with their range or interval, paired differences and their tests.

Seeds are paired: trials of one seed see the same batches in the same order and the same noise, and their backbones
start from the same weights, whichever layer is tested. So two rows are compared by their differences seed by seed.
Repetitions, whose splits, tuning points and permutations all rows share, are paired likewise.

Test splits of repetitions are drawn from the same events, so that values of two repetitions are correlated, and the
standard deviation from one to the next is too small for the uncertainty of their mean. Over J repetitions with a test
split of the share rho of all events, its variance is taken as

    (1/J + rho / (1 - rho)) s^2,    s^2 the variance between repetitions, with J - 1 degrees of freedom

(Nadeau and Bengio, "Inference for the Generalization Error", Machine Learning 52, 2003). It is exact where any two
repetitions have the correlation rho, as the means of two random subsets of a pool have. A test split that is the same
in every repetition has rho = 0: its events are then not part of what varies. Seeds alone have no such share, None.

The test is Student's t on those differences, not Wilcoxon's signed ranks: with eight pairs the ranks cannot give a p
below 1/128, which Holm's correction of the ten comparisons of five rows would put beyond 0.05 whatever was measured.
The differences are of means over a whole test split, for which a normal distribution from seed to seed is a fair model.

Holm's correction for all pairs of a family decides at any number of pairs from three on. Below eight, p would depend on
that model more than on what was measured, and is not shown; the interval is then Student's at the level of its pair's
step of the correction (Serlin, "Confidence Intervals and the Scientific Method: A Case for Holm on the Range", Journal
of Experimental Education 61, 1993), so that it excludes zero if and only if the correction shows a difference.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import TypeVar

import numpy as np

Key = TypeVar("Key", bound=Hashable)

LEVEL = 0.95  # of intervals
SIGNIFICANCE = 0.05  # of p-values after Holm's correction
LEAST_SEEDS = 8  # for the interval of a mean and for p; below, the lowest and the highest seed alone
LEAST_FOR_STUDENT = 3  # seeds, for Student's interval of a difference; repetitions, for any interval
ADJUSTED = "Holm-adjusted"  # intervals of too few pairs for p
POWER = 0.8  # of the test at the smallest difference that is called detectable
RESAMPLES = 9999
BATCH = 500  # resamples at once: all of 660 seeds take 100 MB and more time, and the interval is the same


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds or repetitions with its uncertainty.

    Attributes:
        low, high: the 95 % interval, of seeds from `LEAST_SEEDS` on and of repetitions from `LEAST_FOR_STUDENT` on;
            below that the lowest and the highest value; None for a single value.
        seeds: the number of values.
        standard_error: of a single value that is a mean over examples, over these; None where unknown.
        share: the test share of repetitions; None for seeds alone.
    """

    mean: float
    low: float | None
    high: float | None
    seeds: int
    standard_error: float | None = None
    share: float | None = None

    @property
    def bars(self) -> tuple[float, float]:
        """The distances of `low` and `high` from the mean; for a single value its standard error, 0 if unknown."""
        if self.low is None or self.high is None:
            return (self.standard_error or 0.0,) * 2
        return self.mean - self.low, self.high - self.mean


def estimate(values: Sequence[float], standard_error: float | None = None, share: float | None = None) -> Estimate:
    """Return the mean of one value or more with its uncertainty.

    Of repetitions, with the test share `share`, the interval is Student's with the corrected variance (see above).

    Of seeds it is the bias-corrected accelerated (BCa) bootstrap interval (Efron, 1987). Its generator is fixed: the
    same values, in whatever order, give the same interval. Of few values it is hardly more than their range, and covers
    the true mean less often than 95 %, so `low` and `high` are then their range.
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Estimate(mean, None, None, len(values), standard_error, share)
    if min(values) == max(values):  # of equal values the bootstrap has one mean, and BCa no answer
        return Estimate(mean, mean, mean, len(values), share=share)
    if share is not None and len(values) >= LEAST_FOR_STUDENT:
        half = _half_width(values, share)
        return Estimate(mean, mean - half, mean + half, len(values), share=share)
    if share is not None or len(values) < LEAST_SEEDS:
        return Estimate(mean, min(values), max(values), len(values), share=share)
    return Estimate(mean, *_bootstrap(tuple(sorted(map(float, values)))), len(values))


def widening(number: int, share: float | None) -> float:
    """Return the corrected standard error of a mean over repetitions as a multiple of s / sqrt(J); 1 of seeds.

    Raises:
        ValueError: the share is not in [0, 1).
    """
    if share is None:
        return 1.0
    if not 0 <= share < 1:
        raise ValueError(f"test share {share:g}: a test split has a part of the events, at least 0 and less than 1")
    return math.sqrt(1 + number * share / (1 - share))


def _standard_error(values: Sequence[float], share: float | None, number: int | None = None) -> float:
    """Return the standard error of the mean of the values, or of `number` values that vary as these do."""
    number = number or len(values)
    return statistics.stdev(values) / math.sqrt(number) * widening(number, share)


def _half_width(values: Sequence[float], share: float | None, comparisons: int = 1) -> float:
    """Return half the width of Student's interval of the mean, with Bonferroni's correction for so many of them."""
    from scipy.special import stdtrit  # the quantile of Student's t; scipy.stats takes most of a second to import

    quantile = stdtrit(len(values) - 1, 1 - (1 - LEVEL) / (2 * comparisons))
    return float(quantile) * _standard_error(values, share)


@lru_cache(maxsize=4096)  # a report asks for the same seeds in several tables and figures
def _bootstrap(values: tuple[float, ...]) -> tuple[float, float]:
    from scipy import stats  # most of a second to import, which a report of single seeds does without

    interval = stats.bootstrap(
        (np.asarray(values),),
        np.mean,
        confidence_level=LEVEL,
        n_resamples=RESAMPLES,
        method="BCa",
        rng=np.random.default_rng(0),
        batch=BATCH,
    ).confidence_interval
    return float(interval.low), float(interval.high)


def spread_text(seeds: Iterable[int], repeated: bool = False) -> str:
    """Return the meaning of `low` and `high` of estimates over these numbers of seeds, for captions and legends.

    Args:
        repeated: they are numbers of repetitions.
    """
    least = LEAST_FOR_STUDENT if repeated else LEAST_SEEDS
    few = {number < least for number in seeds if number > 1}
    kind, sample = ("corrected", "repetitions") if repeated else ("bootstrap", "seeds")
    interval, extremes = f"{100 * LEVEL:g} % {kind} interval", "lowest, highest"
    if few == {True, False}:
        return f"{interval}; below {least} {sample} {extremes}"
    return extremes if True in few else interval


@dataclass(frozen=True)
class Difference:
    """The difference of two rows, first - second, over the seeds or repetitions that both have.

    Attributes:
        p: of the paired t test, corrected for all comparisons of its family; None below eight pairs.
        effect: Cohen's d of paired values; None below eight pairs, and where the differences are all equal.
        values: the differences pair by pair.
        p_raw: p before the correction for several comparisons.
        family: the number of comparisons that were tested together.
        step: below eight pairs, the number of comparisons for which its step of Holm's correction corrects, and so
            does the interval; else 1.
    """

    estimate: Estimate
    p: float | None = None
    effect: float | None = None
    values: tuple[float, ...] = ()
    p_raw: float | None = None
    family: int = 0
    step: int = 1

    @property
    def significant(self) -> bool:
        """True if a test was made and the rows differ significantly."""
        return self.p is not None and self.p < SIGNIFICANCE

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval: of the bootstrap where seeds have a test, else Student's; None with too few values.

        With a test it is that of the pair alone; below eight pairs it is as wide as the step of Holm's correction asks.
        """
        low, high = self.estimate.low, self.estimate.high
        if self.p is not None and low is not None and high is not None:
            return low, high
        if len(self.values) < LEAST_FOR_STUDENT:
            return None
        half = _half_width(self.values, self.estimate.share, self.step)
        return self.estimate.mean - half, self.estimate.mean + half

    @property
    def detectable(self) -> float | None:
        """The smallest difference that the test finds with 80 % power (see `detectable_with`); None without a test."""
        return None if self.p is None else self.detectable_with(len(self.values))

    def detectable_with(self, number: int) -> float | None:
        """Return the smallest difference that a test of `number` pairs, which vary as these do, finds with 80 % power.

        It is that of a two-sided test at the level of the first step of Holm's correction, 0.05 over the number of
        comparisons of the family: a difference that is found there needs no other one to be found. The distribution of
        the statistic is the noncentral t, with the (corrected) standard error that was measured. None below three
        pairs, whose spread is hardly known.
        """
        if len(self.values) < LEAST_FOR_STUDENT:
            return None
        from scipy.special import nctdtrinc, stdtrit

        critical = stdtrit(number - 1, 1 - SIGNIFICANCE / (2 * self.family))
        # Of a difference this large, the statistic is beyond the other end with a probability below 1e-6.
        scale = float(nctdtrinc(number - 1, 1 - POWER, critical))
        return scale * _standard_error(self.values, self.estimate.share, number)

    @property
    def leads(self) -> float:
        """The share of pairs in which the first row is lower."""
        return statistics.fmean(value < 0 for value in self.values)

    def equivalence(self, margin: float) -> float | None:
        """Return p of the hypothesis that the rows differ by the margin or more; None below eight pairs.

        Small values show that they are equal but for less than the margin: two one-sided t tests (Schuirmann, 1987)
        with the (corrected) standard error, of which the larger p counts. It is not corrected for other comparisons.
        """
        if self.p is None:
            return None
        from scipy.special import stdtr

        room = margin - abs(self.estimate.mean)
        if min(self.values) == max(self.values):
            return 0.0 if room > 0 else 1.0
        return float(stdtr(len(self.values) - 1, -room / _standard_error(self.values, self.estimate.share)))

    @property
    def separated(self) -> bool:
        """True if the rows are shown to differ, after Holm's correction: by p or, below eight pairs, by `interval`."""
        interval = self.interval
        if self.p is not None or interval is None:
            return self.significant
        return interval[0] > 0 or interval[1] < 0

    def short(self) -> str:
        """Return the difference with `interval`, and p where there is a test: "+0.148 [+0.140, +0.156], p 0.003"."""
        text = f"{self.estimate.mean:+.3f}"
        if self.interval is not None:
            text += f" [{self.interval[0]:+.3f}, {self.interval[1]:+.3f}]"
        return text if self.p is None else f"{text}, {p_text(self.p)}"

    def evidence(self) -> str:
        """Return the difference with what decides whether it is shown: the test, or the interval of few seeds."""
        if self.p is not None:
            return self.text()
        seeds = self.estimate.seeds
        sample = sample_text(seeds, self.estimate.share is not None)
        if self.interval is None:
            return f"{self.estimate.mean:+.3f} ({sample}, too few for an interval)"
        low, high = self.interval
        kind = interval_kind([self])
        return f"{self.estimate.mean:+.3f} ({kind} 95 % interval of {sample}: [{low:+.3f}, {high:+.3f}])"

    def __neg__(self) -> Difference:
        """Return second - first."""
        estimate = self.estimate
        low, high = (None if bound is None else -bound for bound in (estimate.high, estimate.low))
        turned = replace(estimate, mean=-estimate.mean, low=low, high=high)
        effect = None if self.effect is None else -self.effect
        return replace(self, estimate=turned, effect=effect, values=tuple(-value for value in self.values))

    def text(self) -> str:
        """Return `short` and, where there is a test, the effect: "+0.148 [+0.140, +0.156], p 0.003, d 2.1"."""
        return self.short() + ("" if self.effect is None else f", d {self.effect:.1f}")


def p_text(p: float) -> str:
    """Return "p 0.003"."""
    return f"p {'< 0.001' if p < 0.001 else f'{p:.3f}'}"


def sample_text(number: int, repeated: bool) -> str:
    """Return "8 seeds" or "8 repetitions"."""
    return f"{number} {'repetition' if repeated else 'seed'}{'s' * (number != 1)}"


def interval_kind(differences: Iterable[Difference]) -> str:
    """Return how the intervals of these differences are made; empty where none has one."""
    kinds = set()
    for difference in differences:
        if difference.interval is not None:
            kind = "Student's" if difference.p is None else "bootstrap"
            kind = kind if difference.estimate.share is None else "corrected"
            kinds.add(f"{ADJUSTED} {kind}" if len(difference.values) < LEAST_SEEDS else kind)
    return " or ".join(sorted(kinds))


def paired_differences(
    rows: Mapping[str, Mapping[int, float]], share: float | None = None
) -> dict[tuple[str, str], Difference]:
    """Return (first, second) -> first - second for pairs of rows, label -> seed -> value, tested as one family.

    Args:
        share: the test share where the values are by repetition; None: by seed.
    """
    shared = {(a, b): sorted(rows[a].keys() & rows[b].keys()) for a, b in combinations(rows, 2)}
    samples = {(a, b): [rows[a][seed] - rows[b][seed] for seed in seeds] for (a, b), seeds in shared.items() if seeds}
    return judged(samples, dict.fromkeys(samples, share))


def judged(
    differences: Mapping[Key, Sequence[float]], shares: Mapping[Key, float | None] | None = None
) -> dict[Key, Difference]:
    """Return the estimate of each sample of differences, with the test of its family where it has three or more.

    Holm's correction is for all of these. From eight on they have p, below that the step that widens the interval.

    Args:
        shares: the test shares of samples by repetition; None, or a sample without one: by seed.
    """
    share = {key: (shares or {}).get(key) for key in differences}
    samples = {key: values for key, values in differences.items() if len(values) >= LEAST_FOR_STUDENT}
    raw = {key: _paired_t(values, share[key]) for key, values in samples.items()}
    corrected = holm({key: p for key, (p, _) in raw.items()})
    shown = sum(p < SIGNIFICANCE for p in corrected.values())  # the first ones; the others stay at the step after them
    steps = {key: len(raw) - min(place, shown) for place, key in enumerate(corrected)}
    tested = {}
    for key, values in differences.items():
        mean, family = estimate(values, share=share[key]), len(raw)
        if len(values) < LEAST_SEEDS:
            tested[key] = Difference(mean, values=tuple(values), family=family, step=steps.get(key, 1))
        else:
            p, effect = raw[key]
            tested[key] = Difference(mean, corrected[key], effect, tuple(values), p, family)
    return tested


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Return p-values corrected by Holm (1979): the i-th smallest of m times m - i + 1, at most 1, never falling.

    They are in the order of the steps.
    """
    corrected: dict[Key, float] = {}
    largest = 0.0
    for before, key in enumerate(sorted(p_values, key=lambda key: p_values[key])):
        largest = max(largest, min(1.0, (len(p_values) - before) * p_values[key]))
        corrected[key] = largest
    return corrected


def _paired_t(differences: Sequence[float], share: float | None) -> tuple[float, float | None]:
    """Return p of Student's t, and Cohen's d; equal differences are certain, but have no standard deviation."""
    if min(differences) == max(differences):
        return (1.0 if differences[0] == 0 else 0.0), None
    p, effect = student_test(np.asarray(differences), share)
    return float(p), float(effect)


def student_test(differences: np.ndarray, share: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Return p of the (corrected) t test of samples (..., J) with mean zero, and Cohen's d."""
    from scipy.special import stdtr

    number = differences.shape[-1]
    variance = differences.var(axis=-1) * (number / (number - 1))  # rounded as scipy.stats does
    statistic = differences.mean(axis=-1) / np.sqrt(variance / number)
    return 2 * stdtr(number - 1, -abs(statistic) / widening(number, share)), statistic / math.sqrt(number)


def slope(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Return (slope, half width of its 95 % interval) of a line through three points or more, by least squares."""
    from scipy import stats

    fit = stats.linregress(x, y)
    return float(fit.slope), float(fit.stderr * stats.t.ppf((1 + LEVEL) / 2, len(x) - 2))
