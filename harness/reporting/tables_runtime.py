"""The tables of a runtime suite: one for each sweep and operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.reporting.cells import EMPTY, Line, Notes, device_text, shape_text, threads_text, time_cell
from harness.reporting.rendering import Table
from harness.settings import RuntimeTrial

if TYPE_CHECKING:
    from harness.planning.plan import Plan


def runtime_tables(plan: Plan, lines: Sequence[Line]) -> list[Table]:
    """A table per sweep and operation: a row per layer, a column per point of the sweep."""
    made = []
    for sweep in dict.fromkeys(line["sweep"] for line in lines):
        in_sweep = [line for line in lines if line["sweep"] == sweep]
        points = list(dict.fromkeys((line["shape"], line["batch"]) for line in in_sweep))
        shapes, batches = ({point[i] for point in points} for i in (0, 1))
        for operation in dict.fromkeys(line["operation"] for line in in_sweep):
            notes = Notes()
            cells = {
                (line["layer"], line["shape"], line["batch"]): time_cell(line, notes)
                for line in in_sweep
                if line["operation"] == operation
            }
            header = [point_label(point, len(shapes) > 1, len(batches) > 1) for point in points]
            fixed = [f"batch {points[0][1]}"] if len(batches) == 1 else []
            fixed += [f"shape {shape_text(points[0][0])}"] if len(shapes) == 1 else []
            made.append(
                Table(
                    f"{plan.suite}-{sweep}-{operation}",
                    runtime_caption(plan, in_sweep, operation, fixed),
                    ("layer", *header),
                    tuple((row, *(cells.get((row, *point), EMPTY) for point in points)) for row in plan.rows),
                    notes.numbered(),
                )
            )
    return made


def runtime_caption(plan: Plan, lines: Sequence[Line], operation: str, fixed: Sequence[str]) -> str:
    """What was timed and how."""
    sweep = lines[0]["sweep"]
    trial = next(trial for trial in plan.trials if isinstance(trial, RuntimeTrial) and trial.sweep == sweep)
    what = {
        "forward": "forward with log-determinant, in grad mode",
        "forward_backward": "forward with log-determinant, and backward",
        "inverse": "inverse, without gradient",
    }[operation]
    return (
        f"{sweep}: {what}. Milliseconds, median (interquartile range) of {trial.timing.rounds} samples after "
        f"{trial.timing.warmup} warm-up calls{''.join(f', {part}' for part in fixed)}. "
        f"Profile {plan.profile}, {device_text(plan.device, lines)}, {trial.dtype}, {threads_text(trial.threads)}."
    )


def point_label(point: tuple[str, int], shape_varies: bool, batch_varies: bool) -> str:
    """A point of a sweep, by what varies in it."""
    parts = [shape_text(point[0])] if shape_varies or not batch_varies else []
    parts += [f"batch {point[1]}"] if batch_varies else []
    return ", ".join(parts)
