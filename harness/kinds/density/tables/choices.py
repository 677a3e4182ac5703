"""The settings that validation chose for each layer on each data set, and the space that was searched."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from harness.kinds.density.captions import sentences
from harness.kinds.density.likelihoods import per_column
from harness.kinds.density.trial import DensityTrial, Tuning
from harness.kinds.density.tuning.searches import Search, candidates_text, setting_name, spans, value_text
from harness.reporting.frame import Results
from harness.reporting.tables.cells import EMPTY
from harness.reporting.tables.rendering import Table

RATE = "training.learning_rate"
NOT_TUNED = "not tuned"
EDGE = "*"
AT_EDGE = f"{EDGE} the lowest or the highest value that was tried, so that a lower loss may lie beyond it"


@dataclass(frozen=True)
class TuningOutcome:
    """The outcome of one tuning of a layer on a data set; None where no candidate was chosen."""

    search: Search
    changes: Mapping[str, Any] | None

    @property
    def at_edge(self) -> bool:
        """True if a chosen setting is the lowest or the highest of those that were tried."""
        return any(self.search.at_edge(path, value) for path, value in (self.changes or {}).items())


def choices_table(results: Results) -> Table | None:
    """Return a row per layer and a column per data set; None where nothing was tuned."""
    plan, chosen, states = results.plan, choices(results), results.statuses
    if not chosen:
        return None
    planned = {(row, trial.column) for trial in plan.trials for row in trial.rows}
    rows = []
    for row in plan.rows:
        cells = [row]
        for column in plan.columns:
            of_cell = chosen.get(column, {}).get(row)
            if of_cell is None:
                cells.append(NOT_TUNED if (row, column) in planned else EMPTY)
            else:
                cells.append(_settings(of_cell) + _outcomes(of_cell, states))
        rows.append(tuple(cells))
    edges = any(EDGE in cell for row in rows for cell in row[1:])
    searched = {column: _search_text(chosen[column]) for column in plan.columns if column in chosen}
    protocol = per_column(searched, form="{columns}: {text}")
    return Table(
        f"{plan.suite}-choices",
        f"Settings that validation chose, by data set. {protocol}.",
        ("layer", *plan.columns),
        tuple(rows),
        (AT_EDGE,) * edges,
        words=frozenset(range(1, len(plan.columns) + 1)),
        detail=True,
    )


def at_edges(results: Results) -> tuple[int, int]:
    """Return the number of choices at an edge of the values that were tried, and the number of all tunings."""
    every = [choice for of_rows in choices(results).values() for of_cell in of_rows.values() for choice in of_cell]
    return sum(choice.at_edge for choice in every), len(every)


def chosen_rates(results: Results) -> list[str]:
    """Return a remark with the learning rates that validation chose, by data set; none where it chose no rate."""
    parts = []
    for column in filter(choices(results).__contains__, results.plan.columns):
        rates: dict[tuple[float, ...], list[str]] = {}
        for row, of_cell in choices(results)[column].items():
            values = [choice.changes[RATE] for choice in of_cell if choice.changes and RATE in choice.changes]
            if values:
                rates.setdefault((min(values), max(values)), []).append(row)
        texts = [
            f"{' to '.join(dict.fromkeys(map(value_text, ends)))} ({', '.join(rows)})"
            for ends, rows in sorted(rates.items())
        ]
        parts += [f"{column}: {', '.join(texts)}"] if texts else []
    return [f"chosen learning rates: {'; '.join(parts)}"] if parts else []


@lru_cache(maxsize=4)  # the table, its remarks and the answer ask for the same ones
def choices(results: Results) -> dict[str, dict[str, list[TuningOutcome]]]:
    """Return data set -> layer -> its choices: one that all seeds share, or one of each repetition with a tuning."""
    frame = results.of_kind("density").dropna(subset="chosen")
    recorded = dict(zip(frame["id"], map(json.loads, frame["chosen"]), strict=True))
    groups: dict[str, dict[str, dict[Tuning, list[DensityTrial]]]] = {}
    for trial in results.plan.trials:
        if isinstance(trial, DensityTrial) and trial.tuning is not None:
            of_row = groups.setdefault(trial.data.label, {}).setdefault(trial.layer.row, {})
            of_row.setdefault(trial.tuning, []).append(trial)
    return {
        column: {
            row: [_choice(results, tuning, trials, recorded) for tuning, trials in of_row.items()]
            for row, of_row in of_rows.items()
        }
        for column, of_rows in groups.items()
    }


def _choice(
    results: Results, tuning: Tuning, trials: Sequence[DensityTrial], recorded: Mapping[str, Mapping[str, Any]]
) -> TuningOutcome:
    """Return the choice of trials that share a tuning: as their records have it, else as the candidates decide."""
    search = Search.of(trials[0], tuning, results)
    for trial in trials:
        if trial.id in recorded:
            return TuningOutcome(search, recorded[trial.id])
    number = trials[0].choice(results.records)
    return TuningOutcome(search, None if number is None else dict(tuning.candidates[number]))


def _settings(of_cell: Sequence[TuningOutcome]) -> str:
    """Return the chosen settings; over repetitions the ends of numbers, and how often each other value was chosen."""
    made = [choice for choice in of_cell if choice.changes is not None]
    if not made:
        return "none"
    parts = []
    for path in sorted({path for choice in made for path in choice.changes or ()}, key=_place):
        having = [(choice, choice.changes[path]) for choice in made if choice.changes and path in choice.changes]
        values = [value for _, value in having]
        edges = sum(choice.search.at_edge(path, value) for choice, value in having)
        if len(of_cell) == 1:
            text = value_text(values[0]) + EDGE * edges
        else:
            text = _several(values) + (f" ({EDGE} in {edges} of {len(of_cell)})" if edges else "")
        parts.append(f"{setting_name(path)} {text}")
    lacking = len(of_cell) - len(made)
    return ", ".join(parts) + (f"; none in {lacking} of {len(of_cell)}" if lacking else "")


def _several(values: Sequence[Any]) -> str:
    """Return the ends of numbers, or the other values with their counts."""
    counts = Counter(map(value_text, values))
    if len(counts) == 1:
        return next(iter(counts))
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return f"{value_text(min(values))} to {value_text(max(values))}"
    return "/".join(f"{text} ({count} of {len(values)})" for text, count in counts.most_common())


def _place(path: str) -> tuple[bool, bool, str]:
    """Return the sort key of a setting: the learning rate first, options of the layer last."""
    return path.startswith("layer."), path != RATE, path


def _outcomes(of_cell: Sequence[TuningOutcome], states: Mapping[str, str]) -> str:
    """Return the candidates without a valid likelihood: " (2 of 8 diverged)"."""
    run = [trial for choice in of_cell for trial in choice.search.run]
    total = len(run)
    counts = Counter(states[trial.id] for trial in run if states.get(trial.id, "ok") != "ok")
    parts = [f"{count} of {total} {state}" for state, count in sorted(counts.items())]
    return f" ({', '.join(parts)})" if parts else ""


def _search_text(of_layers: Mapping[str, Sequence[TuningOutcome]]) -> str:
    """Return the number of candidates, their seed and steps, and the values of the settings that all layers share."""
    firsts = {row: of_cell[0].search for row, of_cell in of_layers.items()}
    several = max(map(len, of_layers.values())) > 1
    seeds = sorted({choice.search.tuning.seed for of_cell in of_layers.values() for choice in of_cell})
    steps = " or ".join(dict.fromkeys(map(_steps_text, firsts.values())))
    longest = max(firsts.values(), key=lambda search: len(search.run))
    shared = [
        f"{setting_name(path)} {_values_text(values)}"
        for path, values in sorted(longest.tried.items(), key=lambda item: _place(item[0]))
        if not path.startswith("layer.")
    ]
    return sentences("search", candidates_text(firsts), seeds, steps, several, shared)


def _steps_text(search: Search) -> str:
    final = search.trial.training.steps
    steps = search.tuning.steps or final
    bound = "up to " if search.trial.training.patience is not None else ""
    text = f"{bound}{steps:,} training step{'s' * (steps != 1)} each"
    return text + (f" ({bound}{final:,} in the final training)" if steps < final else "")


def _values_text(values: Collection[Any]) -> str:
    shown = list(values)
    return f"{value_text(shown[0])} to {value_text(shown[-1])}" if spans(shown) else " or ".join(map(value_text, shown))
