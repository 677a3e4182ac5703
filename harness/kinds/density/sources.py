"""The sources of variation that intervals and tests of a density suite cover, and the words for captions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

from harness.core.settings import PER_SEED
from harness.kinds.density.trial import DensityTrial
from harness.reporting.frame import Results
from harness.reporting.page.answer import listed

TRAINING, TUNING, SPLITS, PERMUTATIONS = "training seeds", "tuning points", "splits", "permutations"
KEPT = "splits of training and validation events"
FIXED = "the test split is fixed"


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
    texts: dict[str, dict[str, list[str]]] = {}  # others -> covered -> data sets
    for column in results.plan.columns:
        trials = _trials(results, column)
        if varied := sources(trials):
            covered = f"{varied[0]} alone" if len(varied) == 1 else listed(varied)
            covered += f" ({FIXED})" * (KEPT in varied)
            texts.setdefault(" or ".join(_others(varied, trials)), {}).setdefault(covered, []).append(column)
    alike = len(texts) == 1 and len(next(iter(texts.values()))) == 1
    sentences = []
    for others, columns in texts.items():
        parts = [covered + ("" if alike else f" on {listed(names)}") for covered, names in columns.items()]
        open_ones = f": {others} may order the layers otherwise" if others else ""
        sentences.append(f"Intervals cover {', and '.join(parts)}{open_ones}.")
    return " ".join(sentences)


def _others(varied: Sequence[str], trials: Sequence[DensityTrial]) -> Iterator[str]:
    """Yield what was drawn once, and would be another if it were drawn again."""
    if TUNING not in varied and any(trial.tuning is not None for trial in trials):
        yield "another tuning draw"
    if SPLITS not in varied:
        yield "another test split" if KEPT in varied else "another split"
    if PERMUTATIONS not in varied and any(trial.data.permute is not None for trial in trials):
        yield "another permutation"


def _trials(results: Results, column: str) -> list[DensityTrial]:
    return [trial for trial in results.plan.trials if isinstance(trial, DensityTrial) and trial.data.label == column]
