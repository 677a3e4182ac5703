"""Statistics over data sets (Demsar, JMLR 2006): ranks and their test, pairwise tests of effects, wins and losses.

A data set is one observation: seeds make its means more certain, and do not add to the number of observations. Frames
have a row for each data set and a column for each layer. Means of different data sets have different scales, and may
have different units, so they are ranked within their data set and never averaged. Signed ranks need differences of one
scale, and are taken of effects: leads in units of a distance of the same data set.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from harness.reporting.statistics.statistics import SIGNIFICANCE, Difference, holm

LEAST_DATASETS = 3  # for a test; fewer are counted alone
LEAST_LAYERS = 3  # for Friedman's test; for two layers it is a sign test
RESAMPLES = 9999  # of the ranks, where there are too many permutations to count

Outcome = Literal["win", "tie", "loss"]


class Friedman(NamedTuple):
    """Friedman's statistic, which has about a chi-square distribution for many data sets, and p by permutation."""

    statistic: float
    p: float


@dataclass(frozen=True, eq=False)
class Standings:
    """Layers compared over data sets.

    Attributes:
        means: of every layer on every data set, lower is better.
        effects: on those of the data sets that have a scale, higher is better and 0 is the reference; empty without.
    """

    means: pd.DataFrame
    effects: pd.DataFrame

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """The ranks within each data set, 1 for the lowest mean; equal means share the average of their ranks."""
        return self.means.rank(axis="columns")

    @cached_property
    def average_ranks(self) -> pd.Series:
        """The mean rank of each layer, the best layer first."""
        return self.ranks.mean().sort_values(kind="stable")

    @cached_property
    def friedman(self) -> Friedman | None:
        """The test of equal layers; None with fewer data sets or layers than it needs.

        p is the share of permutations of the ranks within each data set whose statistic is as large or larger: the
        chi-square distribution is far off for few data sets (of 1,000 sets of five with nine equal layers, it calls
        some 30 significant at 0.05, not 50).
        """
        datasets, layers = self.means.shape
        if datasets < LEAST_DATASETS or layers < LEAST_LAYERS:
            return None
        ranks = [self.ranks[layer].to_numpy() for layer in self.ranks]
        if all(np.ptp(of_dataset) == 0 for of_dataset in zip(*ranks, strict=True)):
            return Friedman(0.0, 1.0)
        from scipy import stats

        test = stats.permutation_test(
            ranks,
            _squares,
            permutation_type="samples",
            alternative="greater",
            n_resamples=RESAMPLES,
            vectorized=True,
            rng=np.random.default_rng(0),  # the same means give the same p
        )
        return Friedman(float(stats.friedmanchisquare(*ranks).statistic), float(test.pvalue))

    @cached_property
    def pairs(self) -> pd.DataFrame | None:
        """p of Wilcoxon's signed-rank test of each pair after Holm's correction; None below three data sets."""
        if len(self.effects) < LEAST_DATASETS or self.effects.shape[1] < 2:
            return None
        from scipy import stats

        columns = self.effects.columns
        with np.errstate(invalid="ignore"):  # of two layers that are equal on all data sets, whose p is 1
            raw = {
                pair: stats.wilcoxon(*(self.effects[row] for row in pair)).pvalue for pair in combinations(columns, 2)
            }
        tests = pd.DataFrame(1.0, columns, columns)
        for (first, second), p in holm(raw).items():
            tests.loc[first, second] = tests.loc[second, first] = p
        return tests

    def without(self, layers: Iterable[str]) -> Standings:
        """Return the standings of the other layers, ranked anew."""
        kept = [layer for layer in self.means if layer not in set(layers)]
        return Standings(self.means[kept], self.effects[kept])

    @property
    def comparisons(self) -> int:
        """The number of pairs of layers."""
        return self.effects.shape[1] * (self.effects.shape[1] - 1) // 2

    @property
    def decidable(self) -> bool:
        """True if a pair could differ significantly, had its effects all the same sign."""
        return self.pairs is not None and self.comparisons * smallest_p(len(self.effects)) < SIGNIFICANCE

    def apart(self) -> list[tuple[str, str, float]]:
        """Return (better layer, other layer, p) of pairs that differ significantly, in the order of their ranks."""
        if self.pairs is None:
            return []
        order = list(map(str, self.average_ranks.index))
        p_values = self.pairs.loc[order, order].to_numpy(float)
        made = []
        for first, second in combinations(range(len(order)), 2):
            if p_values[first, second] < SIGNIFICANCE:
                a, b = order[first], order[second]
                better, other = (a, b) if (self.effects[a] - self.effects[b]).median() > 0 else (b, a)
                made.append((better, other, float(p_values[first, second])))
        return made


def _squares(*ranks: np.ndarray, axis: int) -> Any:
    """Return the sum of squared rank sums, which orders permutations of the same ranks as Friedman's statistic does."""
    return sum(of_layer.sum(axis=axis) ** 2 for of_layer in ranks)


def smallest_p(datasets: int) -> float:
    """Return the smallest p that a two-sided signed-rank test of so many data sets can give, before any correction."""
    return float(min(1.0, 2.0 ** (1 - datasets)))


def complete(means: pd.DataFrame) -> pd.DataFrame | None:
    """Return the data sets and layers that have no gap among them and the most cells; None if these are too few.

    Of equally many cells, those with more data sets are kept, then those with earlier ones.
    """
    ranked = [frozenset(means.columns[means.loc[label].notna()]) for label in means.index]
    sets: list[frozenset[str]] = []  # of layers that some data sets have in common
    for layers in ranked:
        sets += [shared for shared in dict.fromkeys([layers, *(layers & each for each in sets)]) if shared not in sets]
    choices = []
    for layers in sets:
        chosen = means.loc[[layers <= of_dataset for of_dataset in ranked], [each in layers for each in means.columns]]
        if len(chosen) >= LEAST_DATASETS and chosen.shape[1] >= 2:
            choices.append(chosen)
    return max(choices, key=lambda chosen: (chosen.size, len(chosen)), default=None)


def outcome(difference: Difference, margin: float) -> Outcome:
    """Return win, tie or loss of the first row of a difference; the lower mean wins.

    A difference that is not shown on the data set, or smaller than the margin, is a tie.
    """
    mean = difference.estimate.mean
    if not difference.separated or abs(mean) < margin:
        return "tie"
    return "win" if mean < 0 else "loss"
