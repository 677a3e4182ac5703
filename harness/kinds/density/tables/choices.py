"""The settings that validation chose for each layer on each data set, and the space that was searched."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from harness.kinds.density.tuning.searches import Search, candidates_text, searches, setting_name, spans, value_text
from harness.reporting.frame import Results
from harness.reporting.tables.rendering import Table

RATE = "training.learning_rate"
NOT_TUNED = "not tuned"
EDGE = "*"
AT_EDGE = f"{EDGE} the lowest or the highest value that was tried, so that a lower loss may lie beyond it"


def choices_table(results: Results) -> Table | None:
    """Return a row per layer and a column per data set; None where nothing was tuned."""
    plan, tuned = results.plan, searches(results)
    if not any(tuned.values()):
        return None
    chosen, states = _chosen(results), results.statuses
    rows = []
    for row in plan.rows:
        cells = [row]
        for column in plan.columns:
            search = tuned[column].get(row)
            if search is None:
                cells.append(NOT_TUNED)
            else:
                cells.append(_settings(search, chosen[row, column]) + _outcomes(search, states))
        rows.append(tuple(cells))
    edges = any(EDGE in cell for row in rows for cell in row[1:])
    return Table(
        f"{plan.suite}-choices",
        f"Settings that validation chose, by data set. {_protocol(tuned)}.",
        ("layer", *plan.columns),
        tuple(rows),
        (AT_EDGE,) * edges,
        words=frozenset(range(1, len(plan.columns) + 1)),
        detail=True,
    )


def at_edges(results: Results) -> int:
    """Return the number of layers and data sets with a choice at an edge of the values that were tried."""
    chosen = _chosen(results)
    return sum(
        any(search.at_edge(path, value) for path, value in (chosen[row, column] or {}).items())
        for column, of_layers in searches(results).items()
        for row, search in of_layers.items()
    )


def chosen_rates(results: Results) -> list[str]:
    """Return a remark with the learning rates that validation chose, by data set; none where it chose no rate."""
    rates: dict[str, dict[str, list[str]]] = {}
    for (row, column), changes in _chosen(results).items():
        if changes is not None and RATE in changes:
            rates.setdefault(column, {}).setdefault(value_text(changes[RATE]), []).append(row)
    parts = []
    for column, of_column in rates.items():
        listed = [f"{rate} ({', '.join(of_column[rate])})" for rate in sorted(of_column, key=float)]
        parts.append(f"{column}: {', '.join(listed)}")
    return [f"chosen learning rates: {'; '.join(parts)}"] if parts else []


def _chosen(results: Results) -> dict[tuple[str, str], Mapping[str, Any] | None]:
    """Return (layer, data set) -> the chosen settings of what was tuned; None where no candidate was chosen."""
    trials = results.of_kind("density").dropna(subset="chosen").drop_duplicates(["layer", "dataset"])
    keys = zip(trials["layer"], trials["dataset"], strict=True)
    recorded = dict(zip(keys, map(json.loads, trials["chosen"]), strict=True))
    chosen: dict[tuple[str, str], Mapping[str, Any] | None] = {}
    for column, of_layers in searches(results).items():
        for row, search in of_layers.items():
            number = None if (row, column) in recorded else search.trial.choice(results.records)
            chosen[row, column] = recorded.get(
                (row, column), None if number is None else dict(search.tuning.candidates[number])
            )
    return chosen


def _settings(search: Search, changes: Mapping[str, Any] | None) -> str:
    if changes is None:
        return "none"
    ordered = {path: changes[path] for path in sorted(changes, key=_place)}
    return ", ".join(
        f"{setting_name(path)} {value_text(value)}{EDGE * search.at_edge(path, value)}"
        for path, value in ordered.items()
    )


def _place(path: str) -> tuple[bool, bool, str]:
    """Return the sort key of a setting: the learning rate first, options of the layer last."""
    return path.startswith("layer."), path != RATE, path


def _outcomes(search: Search, states: Mapping[str, str]) -> str:
    """Return the candidates without a valid likelihood: " (2 of 8 diverged)"; under a budget, the number of all."""
    total = len(search.run)
    counts = Counter(states[trial.id] for trial in search.run if states.get(trial.id, "ok") != "ok")
    parts = [f"{count} of {total} {state}" for state, count in sorted(counts.items())]
    if search.tuning.budget is not None:
        parts.insert(0, f"{total} candidate{'s' * (total != 1)}")
    return f" ({', '.join(parts)})" if parts else ""


def _protocol(tuned: Mapping[str, Mapping[str, Search]]) -> str:
    """Return the candidates and their training; for each data set where they differ."""
    texts = {column: _search_text(of_layers) for column, of_layers in tuned.items() if of_layers}
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return "; ".join(f"{column}: {text}" for column, text in texts.items())


def _search_text(of_layers: Mapping[str, Search]) -> str:
    """Return the number of candidates, their seed and steps, and the values of the settings that all layers share."""
    seeds = " and ".join(str(seed) for seed in sorted({search.tuning.seed for search in of_layers.values()}))
    steps = " or ".join(dict.fromkeys(map(_steps_text, of_layers.values())))
    text = f"{candidates_text(of_layers)} of each layer, seed {seeds}, {steps}"
    longest = max(of_layers.values(), key=lambda search: len(search.run))
    shared = [
        f"{setting_name(path)} {_values_text(values)}"
        for path, values in sorted(longest.tried.items(), key=lambda item: _place(item[0]))
        if not path.startswith("layer.")
    ]
    return f"{text}; {', '.join(shared)}, the same points for every layer" if shared else text


def _steps_text(search: Search) -> str:
    final = search.trial.training.steps
    steps = search.tuning.steps or final
    bound = "up to " if search.trial.training.patience is not None else ""
    text = f"{bound}{steps:,} training step{'s' * (steps != 1)} each"
    return text + (f" ({bound}{final:,} in the final training)" if steps < final else "")


def _values_text(values: Collection[Any]) -> str:
    shown = list(values)
    return f"{value_text(shown[0])} to {value_text(shown[-1])}" if spans(shown) else " or ".join(map(value_text, shown))
