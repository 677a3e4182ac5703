"""The costs beside a density table: parameters of each flow, and times of each layer alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.kinds.runtime.trial import RuntimeTrial
from harness.reporting.tables.cells import EMPTY, OPERATIONS, Line, Notes, device_text, threads_text, time_cell
from harness.reporting.tables.rendering import Table

if TYPE_CHECKING:
    from harness.planning.plan import Plan


def cost_table(plan: Plan, lines: Sequence[Line]) -> Table | None:
    """A row per layer; None where nothing was counted or timed."""
    notes = Notes()
    density = [line for line in lines if line["kind"] == "density"]
    columns = [*_parameter_columns(plan, density), *_time_columns(plan, lines, notes)]
    if not columns:
        return None
    caption = f"Measured: profile {plan.profile}, {device_text(plan.device, lines)}. Parameters: of the whole flow."
    timings = [trial for trial in plan.trials if isinstance(trial, RuntimeTrial)]
    if timings:
        caption += (
            f" Times: one layer alone, {timings[0].dtype}, median (interquartile range) of {timings[0].timing.rounds} "
            f"samples, batch {timings[0].batch}, {threads_text(timings[0].threads)}; forward includes the "
            "log-determinant."
        )
    rows = tuple((row, *(cells.get(row, EMPTY) for _, cells in columns)) for row in plan.rows)
    header = ("layer", *(head for head, _ in columns))
    return Table(f"{plan.suite}-cost", caption, header, rows, notes.numbered())


def _parameter_columns(plan: Plan, density: Sequence[Line]) -> list[tuple[str, dict[str, str]]]:
    """Parameter counts, one column for all data sets that share them."""
    groups: list[tuple[list[str], dict[str, str]]] = []
    for column in plan.columns:
        mine = [line for line in density if line["dataset"] == column and line.get("parameters") is not None]
        cells = {line["layer"]: f"{line['parameters']:,}" for line in mine}
        same = next((labels for labels, known in groups if known == cells), None)
        if same is not None:
            same.append(column)
        elif cells:
            groups.append(([column], cells))
    if len(groups) == 1 and len(groups[0][0]) == len(plan.columns):
        return [("parameters", groups[0][1])]
    return [(f"parameters, {' and '.join(labels)}", cells) for labels, cells in groups]


def _time_columns(plan: Plan, lines: Sequence[Line], notes: Notes) -> list[tuple[str, dict[str, str]]]:
    """Median times of the layer alone, a column per operation and event shape.

    Data sets that share a shape and their layers' options were timed on equal terms: the first stands for all.
    """
    timed: dict[tuple[Any, ...], list[RuntimeTrial]] = {}
    for trial in plan.trials:
        if isinstance(trial, RuntimeTrial):
            timed.setdefault((trial.shape, trial.batch, trial.layers), []).append(trial)
    by_trial: dict[str, list[Line]] = {}
    for line in lines:
        by_trial.setdefault(line["id"], []).append(line)
    columns = []
    for operation, name in OPERATIONS.items():
        for same in timed.values():
            if operation in same[0].operations:
                where = "" if len(timed) == 1 else f", {' and '.join(trial.sweep for trial in same)}"
                mine = [line for line in by_trial[same[0].id] if line["operation"] == operation]
                columns.append((f"{name}, ms{where}", {line["layer"]: time_cell(line, notes) for line in mine}))
    return columns
