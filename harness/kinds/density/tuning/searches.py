"""The tuning behind the results of a density suite, by layer and data set, and its description in captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from harness.kinds.density.likelihoods import per_column
from harness.kinds.density.trial import OPTION, CandidateTrial, DensityTrial, Tuning
from harness.kinds.density.tuning.strategy import strategy
from harness.reporting.frame import Results
from harness.reporting.page.answer import listed

LEAST_VALUES = 3  # of a numeric setting, for its values to have an inside and edges


@dataclass(frozen=True)
class Search:
    """The tuning of one layer on one data set.

    Attributes:
        trial: one of those that use the choice.
        tuning: its candidates, as planned.
        run: the last trial of each candidate.
    """

    trial: DensityTrial
    tuning: Tuning
    run: Sequence[CandidateTrial]

    @classmethod
    def of(cls, trial: DensityTrial, tuning: Tuning, results: Results) -> Search:
        """Return the tuning of a trial, as far as it has run."""
        last = {candidate.candidate: candidate for candidate in trial.prerequisites(results.records)}
        return cls(trial, tuning, tuple(last.values()))

    @property
    def tried(self) -> dict[str, list[Any]]:
        """Setting -> its distinct values, numbers in ascending order."""
        values_of: dict[str, list[Any]] = {}
        for changes in self.tuning.candidates[: len(self.run)]:
            for path, value in changes:
                values = values_of.setdefault(path, [])
                values += [value] if value not in values else []
        return {path: sorted(values) if _numeric(values) else values for path, values in values_of.items()}

    def at_edge(self, path: str, value: Any) -> bool:
        """Return whether a value is the lowest or highest of several numbers that were tried."""
        values = self.tried.get(path, [])
        return spans(values) and value in (values[0], values[-1])


def spans(values: Sequence[Any]) -> bool:
    """Return whether these distinct values are numbers, and enough of them to have edges."""
    return _numeric(values) and len(values) >= LEAST_VALUES


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


@lru_cache(maxsize=4)  # captions, tables and figures ask for the same ones
def searches(results: Results) -> dict[str, dict[str, Search]]:
    """Return data set -> layer -> its tuning, in plan order, without the layers that were not tuned."""
    by_column: dict[str, dict[str, Search]] = {column: {} for column in results.plan.columns}
    for trial in results.plan.trials:
        if isinstance(trial, DensityTrial) and trial.tuning is not None:
            by_layer = by_column[trial.data.label]
            if trial.layer.row not in by_layer:
                by_layer[trial.layer.row] = Search.of(trial, trial.tuning, results)
    return by_column


def tuning_text(results: Results) -> str:
    """Return sentences for a caption: among how many candidates settings were chosen, and where nothing was tuned."""
    every = searches(results)
    texts = {column: f"among {candidates_text(by_layer)}" for column, by_layer in every.items() if by_layer}
    untuned = [column for column in every if column not in texts]
    if not texts:
        return "Nothing was tuned: every layer has the settings of the suite, so no order is given."
    text = f"Validation chose each layer's settings {per_column(texts, ', ')}"
    if not untuned:
        return f"{text}."
    return (
        f"{text}{f' on {listed(list(texts))}' * (len(set(texts.values())) == 1)}. Nothing was tuned on "
        f"{listed(untuned)}: every layer has the settings of the suite there, so no order is given."
    )


def candidates_text(by_layer: Mapping[str, Search]) -> str:
    """Return the number of candidates of the layers on one data set, and which of them ended early: "8 candidates"."""
    counts = sorted({len(search.run) for search in by_layer.values()})
    number = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    text = f"{number} candidate{'s' * (counts[-1] != 1)}"
    remark = strategy(next(iter(by_layer.values())).tuning.strategy).remark  # layers differ in options alone
    return f"{text} ({remark})" if remark else text


def setting_name(path: str) -> str:
    """Return a setting in words: "learning rate" for training.learning_rate, "levels" for layer.options.levels."""
    return path.removeprefix(OPTION).removeprefix("training.").removeprefix("flow.").replace("_", " ")


def value_text(value: Any) -> str:
    """Return a value of a setting as in a suite, numbers to three digits."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "/".join(map(value_text, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
