"""Words for captions: means with their intervals, what these are, and the sources of variation that they cover."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.core.settings import PER_SEED
from harness.kinds.density.likelihoods import STANDARD_ERROR, per_column
from harness.kinds.density.trial import DensityTrial
from harness.reporting.frame import Results
from harness.reporting.page.answer import listed
from harness.reporting.statistics.statistics import (
    ADJUSTED,
    Difference,
    Estimate,
    estimate,
    interval_kind,
    spread_text,
)
from harness.reporting.tables.cells import EMPTY

TRAINING, TUNING, SPLITS, PERMUTATIONS = "training seeds", "tuning points", "splits", "permutations"
KEPT = "splits of training and validation events"
FIXED = "the test split is fixed"
_ENVIRONMENT = Environment(loader=PackageLoader(__package__), undefined=StrictUndefined, autoescape=False)

CORRECTED = (
    "Corrected: Student's interval and test with the variance of Nadeau and Bengio (2003) for test splits that overlap."
)
HOLM = (
    f"{ADJUSTED}: each interval at the level of its pair's step of Holm's correction for all pairs of layers; it "
    "excludes zero only where this shows a difference."
)


def sentences(name: str, /, *values: Any, **named: Any) -> str:
    """Return the text of a macro of templates/captions.jinja in one line."""
    macro = getattr(_ENVIRONMENT.get_template("captions.jinja").module, name)
    return " ".join(macro(*values, **named).split())


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
    return " or ".join(f"mean [{spread}] over {words}" for spread, words in _spreads(list(sizes))) or "one seed"


def bars_texts(estimates: Iterable[Estimate]) -> list[str]:
    """Return texts that explain the error bars of these estimates in a figure."""
    shown = list(estimates)
    sizes = [(mean.share is not None, mean.seeds) for mean in shown if mean.low is not None]
    texts = [f"bars over {words}: {spread}" for spread, words in _spreads(sizes)]
    return texts + [f"bars: {STANDARD_ERROR}"] * any(mean.standard_error is not None for mean in shown)


def _spreads(sizes: Sequence[tuple[bool, int]]) -> Iterator[tuple[str, str]]:
    for by_repetition in (False, True):
        numbers = [number for each, number in sizes if each == by_repetition and number > 1]
        if numbers:
            yield spread_text(numbers, by_repetition), pair_words([by_repetition])


def interval_texts(differences: Iterable[Difference]) -> list[str]:
    """Return texts that explain the error bars of these differences in a figure."""
    shown = list(differences)
    kind = interval_kind(shown)
    return [f"bars: {kind} 95 % interval of the difference, over paired {sample_words(shown)}"] if kind else []


def sample_words(samples: Iterable[Difference]) -> str:
    """Return the name of the pairs of these differences, "seeds" where there are none."""
    return pair_words(sample.estimate.share is not None for sample in samples) or "seeds"


def sources(trials: Iterable[DensityTrial]) -> tuple[str, ...]:
    """Return what differs between the repetitions or seeds of the trials of one data set; none of a single one.

    A layer's trials are compared with each other, so that what differs between layers is no source.
    """
    seen: dict[str, dict[str, set[Hashable]]] = {}
    kept = False
    for trial in trials:
        data, values = trial.data, seen.setdefault(trial.layer.row, {})
        permutation = trial.seed if data.permute == PER_SEED else data.permute
        drawn: dict[str, Hashable] = {TRAINING: trial.seed, SPLITS: data.split, PERMUTATIONS: permutation}
        drawn[TUNING] = None if trial.tuning is None else (trial.tuning.seed, trial.tuning.candidates)
        for source, value in drawn.items():
            values.setdefault(source, set()).add(value)
        kept |= data.keep_test
    varied = [
        source
        for source in (TRAINING, TUNING, SPLITS, PERMUTATIONS)
        if any(len(values[source]) > 1 for values in seen.values())
    ]
    return tuple(KEPT if source == SPLITS and kept else source for source in varied)


def sources_of(results: Results, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the sources that vary on any of these data sets, in the order of the first one that has them."""
    return tuple(dict.fromkeys(source for column in columns for source in sources(_trials(results, column))))


def sources_text(results: Results) -> str:
    """Return sentences that say what intervals and tests cover; empty where no trial is repeated."""
    covered: dict[str, dict[str, str]] = {}  # what was drawn once -> data set -> what was drawn anew
    for column in results.plan.columns:
        trials = _trials(results, column)
        if varied := sources(trials):
            text = f"{varied[0]} alone" if len(varied) == 1 else listed(varied)
            once = " or ".join(_drawn_once(varied, trials))
            covered.setdefault(once, {})[column] = text + f" ({FIXED})" * (KEPT in varied)
    sentences = []
    for once, texts in covered.items():
        text = per_column(texts, ", and ")
        if len(covered) > 1 and len(set(texts.values())) == 1:
            text += f" on {listed(list(texts))}"
        sentences.append(f"Intervals cover {text}" + f": {once} may order the layers otherwise" * bool(once) + ".")
    return " ".join(sentences)


def _drawn_once(varied: Sequence[str], trials: Sequence[DensityTrial]) -> Iterator[str]:
    """Yield what was drawn once, and would be another if it were drawn again."""
    if TUNING not in varied and any(trial.tuning is not None for trial in trials):
        yield "another tuning draw"
    if SPLITS not in varied:
        yield "another test split" if KEPT in varied else "another split"
    if PERMUTATIONS not in varied and any(trial.data.permute is not None for trial in trials):
        yield "another permutation"


def _trials(results: Results, column: str) -> list[DensityTrial]:
    return [trial for trial in results.plan.trials if isinstance(trial, DensityTrial) and trial.data.label == column]
