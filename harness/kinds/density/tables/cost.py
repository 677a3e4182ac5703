"""The costs beside a density table: parameters of each flow, and times of each layer alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.kinds.runtime.trial import RuntimeTrial
from harness.reporting.frame import Results, Row, rows_of
from harness.reporting.tables.cells import (
    OPERATIONS,
    Notes,
    device_text,
    fallbacks,
    grid,
    kernel_remarks,
    threads_text,
    time_cell,
)
from harness.reporting.tables.rendering import Table

PARAMETERS = "Parameters: of the whole flow; in brackets without the entries that a mask hides from the map."


def cost_table(results: Results) -> Table | None:
    """Return a row per layer; None where nothing was counted or timed."""
    plan, notes = results.plan, Notes()
    timings = [trial for trial in plan.trials if isinstance(trial, RuntimeTrial)]
    columns = [*_parameter_columns(results), *_time_columns(results, timings, notes)]
    if not columns:
        return None
    device = device_text(plan.device, results.frame)
    caption = f"Measured: profile {plan.profile}, {device}. {PARAMETERS}{_timing_text(timings)}"
    timed = results.of_kind("runtime")
    remarks = (*notes.numbered(), *(kernel_remarks(results, timed) if len(timed) else ()))
    rows = grid(plan.rows, [cells for _, cells in columns])
    header = ("layer", *(head for head, _ in columns))
    return Table(f"{plan.suite}-cost", caption, header, rows, remarks, detail=True, on_card=True)


def _parameter_columns(results: Results) -> list[tuple[str, dict[str, str]]]:
    """Return parameter counts, one column for all data sets that share them."""
    counted = results.of_kind("density").dropna(subset="parameters")
    groups: list[tuple[list[str], dict[str, str]]] = []
    for column in results.plan.columns:
        flows = counted[counted["dataset"] == column]
        cells = {line.layer: _count(line) for line in rows_of(flows)}
        same = next((labels for labels, others in groups if others == cells), None)
        if same is not None:
            same.append(column)
        elif cells:
            groups.append(([column], cells))
    if len(groups) == 1 and len(groups[0][0]) == len(results.plan.columns):
        return [("parameters", groups[0][1])]
    return [(f"parameters, {' and '.join(labels)}", cells) for labels, cells in groups]


def _count(line: Row) -> str:
    """Return the parameters of a flow, and in brackets those that no mask hides, where these are fewer."""
    hidden = line.masked_free < line.parameters
    return f"{line.parameters:,} ({line.masked_free:,})" if hidden else f"{line.parameters:,}"


def _time_columns(results: Results, timings: Sequence[RuntimeTrial], notes: Notes) -> list[tuple[str, dict[str, str]]]:
    """Return columns of median times by heading, one per operation and event shape, each a cell by layer."""
    timed: dict[tuple[Any, ...], list[RuntimeTrial]] = {}  # data sets that were timed on equal terms
    for trial in timings:
        timed.setdefault((trial.shape, trial.batch, trial.layers), []).append(trial)
    columns, lacking = [], fallbacks(results)
    for operation, name in OPERATIONS.items():
        for same in timed.values():
            if operation in same[0].operations:
                where = "" if len(timed) == 1 else f", {' and '.join(trial.sweep for trial in same)}"
                times = results.frame[(results.frame["id"] == same[0].id) & (results.frame["operation"] == operation)]
                cells = {line.layer: time_cell(line, notes, lacking) for line in rows_of(times)}
                columns.append((f"{name}, ms{where}", cells))
    return columns


def _timing_text(timings: Sequence[RuntimeTrial]) -> str:
    """Return what was timed, a sentence for a caption; empty without timings."""
    for trial in timings:
        return (
            f" Times: one layer alone, {trial.dtype}, median (interquartile range) of {trial.timing.rounds} samples, "
            f"batch {trial.batch}, {threads_text(trial.threads)}; forward includes the log-determinant."
        )
    return ""
