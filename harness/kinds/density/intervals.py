"""Means with their intervals as text, and the words for captions: what the intervals are, over seeds or repetitions."""

from __future__ import annotations

from collections.abc import Iterable

from harness.kinds.density.likelihoods import STANDARD_ERROR
from harness.reporting.statistics.statistics import (
    ADJUSTED,
    Difference,
    Estimate,
    estimate,
    interval_kind,
    spread_text,
)
from harness.reporting.tables.cells import EMPTY

CORRECTED = (
    "Corrected: Student's interval and test with the variance of Nadeau and Bengio (2003) for test splits that overlap."
)
HOLM = (
    f"{ADJUSTED}: each interval at the level of its pair's step of Holm's correction for all pairs of layers; it "
    "excludes zero only where this shows a difference."
)


def mean_and_interval(values: Iterable[float], standard_error: float | None = None, share: float | None = None) -> str:
    """Return "2.314 [2.301, 2.325]"; for a single value "2.314 ± 0.012", or "2.314" without its error."""
    sample = list(values)
    if not sample:
        return EMPTY
    result = estimate(sample, standard_error, share)
    if result.low is not None:
        return f"{result.mean:.3f} [{result.low:.3f}, {result.high:.3f}]"
    return f"{result.mean:.3f}" + ("" if result.standard_error is None else f" ± {result.standard_error:.3f}")


def pair_words(repetitions: Iterable[bool]) -> str:
    """Return the name of the pairs of results that are or are not by repetition: "seeds", "seeds or repetitions"."""
    names = {"repetitions" if each else "seeds" for each in repetitions}
    return " or ".join(sorted(names, reverse=True))


def means_text(sizes: Iterable[tuple[bool, int]]) -> str:
    """Return the meaning of the brackets of means over (whether by repetition, number of values)."""
    parts = []
    pairs = list(sizes)
    for by_repetition in (False, True):
        numbers = [number for each, number in pairs if each == by_repetition]
        if max(numbers, default=0) > 1:
            parts.append(f"mean [{spread_text(numbers, by_repetition)}] over {pair_words([by_repetition])}")
    return " or ".join(parts) or "one seed"


def bars_texts(estimates: Iterable[Estimate]) -> list[str]:
    """Return texts that explain the error bars of these estimates in a figure."""
    shown = list(estimates)
    texts = []
    for by_repetition in (False, True):
        numbers = [
            estimate.seeds
            for estimate in shown
            if estimate.low is not None and (estimate.share is not None) == by_repetition
        ]
        if numbers:
            texts.append(f"bars over {pair_words([by_repetition])}: {spread_text(numbers, by_repetition)}")
    return texts + [f"bars: {STANDARD_ERROR}"] * any(estimate.standard_error is not None for estimate in shown)


def interval_texts(differences: Iterable[Difference]) -> list[str]:
    """Return texts that explain the error bars of these differences in a figure."""
    shown = list(differences)
    kind = interval_kind(shown)
    return [f"bars: {kind} 95 % interval of the difference, over paired {sample_words(shown)}"] if kind else []


def sample_words(samples: Iterable[Difference]) -> str:
    """Return the name of the pairs of these differences, "seeds" where there are none."""
    return pair_words(sample.estimate.share is not None for sample in samples) or "seeds"
