"""Statistics over seeds: means with bootstrap intervals, and paired tests from eight seeds on.

Seeds are paired: trials of one seed see the same batches in the same order and the same noise, and their backbones
start from the same weights, whichever layer is tested. So two rows are compared by their differences seed by seed.

The test is Student's t on those differences, not Wilcoxon's signed ranks: with eight pairs the ranks cannot give a p
below 1/128, which Holm's correction of the ten comparisons of five rows would put beyond 0.05 whatever was measured.
The differences are of means over a whole test split, for which a normal distribution from seed to seed is a fair model.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

import numpy as np

Key = TypeVar("Key", bound=Hashable)

LEVEL = 0.95  # of intervals
SIGNIFICANCE = 0.05  # of p-values after Holm's correction
LEAST_SEEDS = 8  # for a test; below, the interval alone
RESAMPLES = 9999


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and its 95 % interval, which a single value has not."""

    mean: float
    low: float | None
    high: float | None
    seeds: int

    @property
    def bars(self) -> tuple[float, float]:
        """The lengths of the interval below and above the mean; 0 for a single value."""
        return (0.0, 0.0) if self.low is None or self.high is None else (self.mean - self.low, self.high - self.mean)


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of one value or more, and its bias-corrected accelerated (BCa) bootstrap interval (Efron, 1987).

    The generator is fixed: the same values, in whatever order, give the same interval. With two or three values it
    is hardly more than their range, and covers the true mean less often than 95 %.
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Estimate(mean, None, None, len(values))
    if min(values) == max(values):  # of equal values the bootstrap has one mean, and BCa no answer
        return Estimate(mean, mean, mean, len(values))
    from scipy import stats  # most of a second to import, which a report of single seeds does without

    found = stats.bootstrap(
        (np.sort(np.asarray(values, dtype=float)),),
        np.mean,
        confidence_level=LEVEL,
        n_resamples=RESAMPLES,
        method="BCa",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Estimate(mean, float(found.low), float(found.high), len(values))


@dataclass(frozen=True)
class Difference:
    """The difference of two rows, first - second, over the seeds that both have.

    `p` is that of the paired t test, corrected for all comparisons of its family, and `effect` is Cohen's d of paired
    values; both are None below eight seeds, the latter also where the differences are all equal.
    """

    estimate: Estimate
    p: float | None = None
    effect: float | None = None

    @property
    def significant(self) -> bool:
        """True if a test was made and the rows differ significantly."""
        return self.p is not None and self.p < SIGNIFICANCE

    def text(self) -> str:
        """Return the difference as text: "+0.148 [+0.140, +0.156], p 0.003, d 2.1"."""
        mean, low, high = self.estimate.mean, self.estimate.low, self.estimate.high
        text = f"{mean:+.3f}"
        if low is not None and high is not None:
            text += f" [{low:+.3f}, {high:+.3f}]"
        if self.p is not None:
            text += f", p {'< 0.001' if self.p < 0.001 else f'{self.p:.3f}'}"
            text += "" if self.effect is None else f", d {self.effect:.1f}"
        return text


def paired_differences(rows: Mapping[str, Mapping[int, float]]) -> dict[tuple[str, str], Difference]:
    """Return (first, second) -> first - second for pairs of rows, label -> seed -> value, that share a seed.

    Holm's correction is over all pairs that have enough seeds for a test.
    """
    shared = {(a, b): sorted(rows[a].keys() & rows[b].keys()) for a, b in combinations(rows, 2)}
    return judged(
        {(a, b): [rows[a][seed] - rows[b][seed] for seed in seeds] for (a, b), seeds in shared.items() if seeds}
    )


def judged(differences: Mapping[Key, Sequence[float]]) -> dict[Key, Difference]:
    """Return the estimate of each sample of differences and, of those with eight or more, the test of their family."""
    raw = {key: _paired_t(values) for key, values in differences.items() if len(values) >= LEAST_SEEDS}
    corrected: dict[Key, float] = {}
    if raw:
        from statsmodels.stats.multitest import multipletests

        corrected = dict(
            zip(raw, map(float, multipletests([p for p, _ in raw.values()], method="holm")[1]), strict=True)
        )
    return {
        key: Difference(estimate(values), corrected.get(key), raw[key][1] if key in raw else None)
        for key, values in differences.items()
    }


def _paired_t(differences: Sequence[float]) -> tuple[float, float | None]:
    """Return p of Student's t, and Cohen's d; equal differences are certain, but have no standard deviation."""
    if min(differences) == max(differences):
        return (1.0 if differences[0] == 0 else 0.0), None
    from scipy import stats

    result = stats.ttest_1samp(differences, 0.0)
    return float(result.pvalue), float(result.statistic) / math.sqrt(len(differences))


def winner(means: Mapping[str, float], differences: Mapping[tuple[str, str], Difference]) -> str | None:
    """Return the row of the lowest mean if it differs significantly from every other one, else None."""
    if len(means) < 2:
        return None
    best = min(means, key=lambda row: means[row])
    pairs = ((best, row) if (best, row) in differences else (row, best) for row in means if row != best)
    return best if all(pair in differences and differences[pair].significant for pair in pairs) else None


def slope(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Return (slope, half width of its 95 % interval) of a line through three points or more, by least squares."""
    from scipy import stats

    fit = stats.linregress(x, y)
    return float(fit.slope), float(fit.stderr * stats.t.ppf((1 + LEVEL) / 2, len(x) - 2))
