"""The lowest value that a number of candidates of a search can be expected to have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from harness.reporting.statistics.statistics import LEVEL, RESAMPLES


@dataclass(frozen=True)
class ExpectedBest:
    """V(1), ..., V(N), each with its 95 % bootstrap interval, which is NaN for a single candidate."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def expected_best(values: Sequence[float]) -> ExpectedBest:
    """Return the expected lowest value of n = 1, ..., N candidates, from the finite values of N of them.

    Of n draws with replacement from the N evaluated candidates, v_(1) <= ... <= v_(N), the lowest has the mean

        V(n) = sum_i v_(i) [P(V >= v_(i))^n - P(V > v_(i))^n],    P from the empirical distribution of the N values,

    the estimator of Dodge et al., "Show Your Work: Improved Reporting of Experimental Results" (EMNLP 2019), for a
    minimum in place of a maximum. The interval is that of percentiles over resamples of the candidates, with a fixed
    generator: the same values, in whatever order, give the same interval.

    Assumptions: the candidates are independent draws from one distribution. Quasi-random points are spread more evenly
    than that, so that the band is rather too wide. Draws with replacement repeat candidates, so that V(n) is above the
    mean over n different ones (Tang et al., ACL 2020). No value below the lowest of the candidates is ever expected, so
    that the lower end of the band is too high where n is near N.
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    mean = ordered @ _weights(len(ordered))
    if len(ordered) == 1:
        return ExpectedBest(mean, np.full(1, np.nan), np.full(1, np.nan))
    tail = (1 - LEVEL) / 2
    means = ordered[_resampled(len(ordered))] @ _weights(len(ordered))
    low, high = np.quantile(np.ascontiguousarray(means.T), (tail, 1 - tail), axis=1)
    return ExpectedBest(mean, low, high)


def mean_expected_best(groups: Sequence[Sequence[float]]) -> ExpectedBest:
    """Return the mean of `expected_best` over repetitions, each with candidates of its own, up to the fewest of these.

    The band is the mean of the bands: the uncertainty of one repetition, not that of the mean.
    """
    every = [expected_best(values) for values in groups]
    shortest = min(len(best.mean) for best in every)
    parts = ([getattr(best, name)[:shortest] for best in every] for name in ("mean", "low", "high"))
    return ExpectedBest(*(np.mean(part, axis=0) for part in parts))


@lru_cache(maxsize=16)  # many layers have equally many candidates
def _resampled(count: int) -> np.ndarray:
    """Return the places of each resample of `count` ordered values, in order."""
    return np.sort(np.random.default_rng(0).integers(0, count, (RESAMPLES, count)), axis=1)


def _weights(count: int) -> np.ndarray:
    """Return (i, n) -> the probability that the i-th lowest of `count` values is the lowest of n draws."""
    at_least = np.arange(count, -1, -1)[:, None] / count  # P(V >= v_(i)), the last one of none
    powers = at_least ** np.arange(1, count + 1)
    return powers[:-1] - powers[1:]
