"""Times of single layers beside the likelihoods of a density suite."""

from __future__ import annotations

from typing import Any

from harness.kinds.runtime.trial import RuntimeTrial
from harness.reporting.frame import Results, rows_of
from harness.reporting.tables.cells import OPERATIONS, Notes, threads_text, time_cell


def time_columns(results: Results, notes: Notes) -> list[tuple[str, dict[str, str]]]:
    """Return columns of median times by heading, one per operation and event shape, each a cell by layer.

    Data sets that share a shape and their layers' options were timed on equal terms: the first stands for all.
    """
    timed: dict[tuple[Any, ...], list[RuntimeTrial]] = {}
    for trial in _timings(results):
        timed.setdefault((trial.shape, trial.batch, trial.layers), []).append(trial)
    columns = []
    for operation, name in OPERATIONS.items():
        for same in timed.values():
            if operation in same[0].operations:
                where = "" if len(timed) == 1 else f", {' and '.join(trial.sweep for trial in same)}"
                own = results.frame[(results.frame["id"] == same[0].id) & (results.frame["operation"] == operation)]
                cells = {line.layer: time_cell(line, notes) for line in rows_of(own)}
                columns.append((f"{name}, ms{where}", cells))
    return columns


def timing_text(results: Results) -> str:
    """Return what was timed, a sentence for a caption; empty without timings."""
    for trial in _timings(results):
        return (
            f" Times: one layer alone, {trial.dtype}, median (interquartile range) of {trial.timing.rounds} samples, "
            f"batch {trial.batch}, {threads_text(trial.threads)}; forward includes the log-determinant."
        )
    return ""


def _timings(results: Results) -> list[RuntimeTrial]:
    return [trial for trial in results.plan.trials if isinstance(trial, RuntimeTrial)]
