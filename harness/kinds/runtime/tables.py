"""The tables of a runtime suite: for each sweep the times of each operation, the memory and the inverses' errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from harness.kinds.runtime.points import (
    FITTED_POINTS,
    LARGEST_DRIFT,
    LARGEST_GAP,
    LARGEST_SPREAD,
    LEAST_CPU_SHARE,
    growth,
    merged,
)
from harness.kinds.runtime.trial import RuntimeTrial
from harness.reporting.frame import Results, Row, rows_of
from harness.reporting.tables.cells import (
    EMPTY,
    OPERATIONS,
    Notes,
    device_text,
    failed_cell,
    layer_cell,
    milliseconds,
    shape_text,
    threads_text,
    time_cell,
)
from harness.reporting.tables.rendering import Table

UNSTABLE = " †"
MOST_COMPLAINTS = 8
BYTES = {"float32": 4, "float64": 8}


def tables(results: Results) -> list[Table]:
    """Return for each sweep a table of times per operation, one of memory, one of errors; a row per layer."""
    made = []
    for sweep in results.frame["sweep"].dropna().unique():
        table = _Sweep(results, sweep)
        made += [table.times(operation) for operation in table.operations]
        made += [other for other in (table.memory(), table.errors()) if other is not None]
    return made


class _Sweep:
    """The points of one sweep, for all of its tables."""

    def __init__(self, results: Results, sweep: str) -> None:
        self.plan, self.sweep = results.plan, sweep
        trials = [trial for trial in self.plan.trials if isinstance(trial, RuntimeTrial) and trial.sweep == sweep]
        self.trial = trials[0]
        self.processes = 1 + max(trial.process for trial in trials)
        frame = results.frame[results.frame["sweep"] == sweep]
        self.measured = merged(frame, self.trial.threads)
        self.points = list(self.measured[["shape", "batch"]].drop_duplicates().itertuples(index=False, name=None))
        self.operations = list(self.measured["operation"].unique())
        self.by_case = {(line.operation, line.layer, line.shape, line.batch): line for line in rows_of(self.measured)}
        shapes, batches = ({point[i] for point in self.points} for i in (0, 1))
        self.header = [point_label(point, len(shapes) > 1, len(batches) > 1) for point in self.points]
        self.fixed = f", batch {self.points[0][1]}" if len(batches) == 1 else ""
        self.fixed += f", shape {shape_text(self.points[0][0])}" if len(shapes) == 1 else ""
        self.rest = (
            f"Profile {self.plan.profile}, {device_text(self.plan.device, frame)}, {self.trial.dtype}, "
            f"{threads_text(self.trial.threads)}."
        )

    def times(self, operation: str) -> Table:
        """Return median and interquartile range, the growth, and below the layers a copy of the tensor."""
        notes = Notes()
        unstable, served = [], []
        rows = []
        for row in self.plan.rows:
            cells = []
            for point, label in zip(self.points, self.header, strict=True):
                line = self.by_case.get((operation, row, *point))
                cells.append(EMPTY if line is None else time_cell(line, notes))
                if line is not None and pd.notna(line.remark):
                    served.append(f"{row} at {label}: {line.remark}")
                if line is not None and line.unstable:
                    cells[-1] += UNSTABLE
                    unstable.append(f"{row} at {label}: {', '.join(line.unstable)}")
            rows.append((layer_cell(row, self.measured, notes), *cells, self._growth(operation, row)))
        copies = [self._copy(operation, point) for point in self.points]
        if any(copy is not None for copy in copies):
            rows.append(("copy", *(EMPTY if copy is None else milliseconds(copy) for copy in copies), EMPTY))
        remarks = (*notes.numbered(), *served)
        if unstable:
            cells_in_all = len(self.points) * len(self.plan.rows)
            remarks += (f"† unstable, {len(unstable)} of {cells_in_all} cells: {BOUNDS}.", *unstable[:MOST_COMPLAINTS])
        if len(unstable) > MOST_COMPLAINTS:
            remarks += (f"and {len(unstable) - MOST_COMPLAINTS} more: see results.csv",)
        return Table(
            f"{self.plan.suite}-{self.sweep}-{operation}",
            self._times_caption(operation),
            ("layer", *self.header, "growth"),
            tuple(rows),
            remarks,
        )

    def memory(self) -> Table | None:
        """Return the peak memory of every operation, in sizes of the point's tensor."""

        def cell(line: Row, notes: Notes) -> str:
            if pd.isna(line.peak_bytes):
                return failed_cell(line, notes) if line.status != "ok" else EMPTY
            return f"{line.peak_bytes / (BYTES[self.trial.dtype] * line.entries):.1f}"

        if self.measured["peak_bytes"].isna().all():
            return None
        names = " / ".join(OPERATIONS[operation] for operation in self.operations)
        caption = (
            f"{self.sweep}: peak memory of {names}, beyond what was held before, as torch's allocator counts it, in "
            f"sizes of the point's tensor{self.fixed}. {self.rest}"
        )
        return self._joined("memory", caption, self.operations, cell)

    def errors(self) -> Table | None:
        """Return the errors of the inverses: the largest distance of x from inverse(forward(x))."""

        def cell(line: Row, notes: Notes) -> str:
            if line.status != "ok":
                return failed_cell(line, notes)
            return EMPTY if pd.isna(line.inverse_error) else f"{line.inverse_error:.0e}"

        operations = [name for name in self.operations if name.startswith("inverse")]
        if self.measured["inverse_error"].isna().all():
            return None
        names = " / ".join(OPERATIONS[operation] for operation in operations)
        caption = f"{self.sweep}: largest |x - inverse(forward(x))| / max(1, |x|) of {names}{self.fixed}. {self.rest}"
        return self._joined("error", caption, operations, cell)

    def _joined(self, name: str, caption: str, operations: Sequence[str], cell: Callable[[Row, Notes], str]) -> Table:
        """Return a table whose cells hold several operations, a failure of all of them once."""
        notes = Notes()
        rows: list[tuple[Any, ...]] = []
        for row in self.plan.rows:
            cells = []
            for point in self.points:
                found = [self.by_case.get((operation, row, *point)) for operation in operations]
                parts = [EMPTY if line is None else cell(line, notes) for line in found]
                cells.append(parts[0] if len(set(parts)) == 1 and "[" in parts[0] else " / ".join(parts))
            rows.append((layer_cell(row, self.measured, notes), *cells))
        header = ("layer", *self.header)
        return Table(f"{self.plan.suite}-{self.sweep}-{name}", caption, header, tuple(rows), notes.numbered())

    def _growth(self, operation: str, row: str) -> str:
        own = (self.measured["layer"] == row) & (self.measured["operation"] == operation)
        fit = growth(self.measured.loc[own, ["entries", "median_ms"]])
        return EMPTY if fit is None else f"{fit[0]:.2f} ± {fit[1]:.2f}"

    def _copy(self, operation: str, point: tuple[str, int]) -> float | None:
        found = (self.by_case.get((operation, row, *point)) for row in self.plan.rows)
        return next((line.copy_ms for line in found if line is not None and pd.notna(line.copy_ms)), None)

    def _times_caption(self, operation: str) -> str:
        """Return what was timed and how."""
        what = {
            "forward": "forward with log-determinant, in grad mode",
            "forward_backward": "forward with log-determinant, and backward",
            "inverse": "inverse, without gradient, factorising included",
            "inverse_warm": "inverse, without gradient, factorised before",
        }[operation]
        timing = self.trial.timing
        times = f" in each of {self.processes} processes" if self.processes > 1 else ""
        calls = f"{timing.warmup} warm-up call{'s' if timing.warmup > 1 else ''}"
        least = f" and {timing.warmup_seconds:g} s" if timing.warmup_seconds else ""
        ended_early = (self.measured["rounds"] < timing.rounds).any()
        early = f", fewer where they took more than {timing.budget_seconds:g} s" if ended_early else ""
        return (
            f"{self.sweep}: {what}. Milliseconds, median (interquartile range) of {timing.rounds} samples"
            f"{times}{early}, layers alternating, after {calls}{least}{self.fixed}. Growth: p where time goes "
            f"as entries to the power of p, over the {FITTED_POINTS} largest points, ± 95 % interval. Copy: of the "
            f"point's tensor. {self.rest}"
        )


BOUNDS = (
    f"the interquartile range exceeds {LARGEST_SPREAD:.0%} of the median, the halves of the rounds differ by more "
    f"than {LARGEST_DRIFT:.0%}, processes by more than {LARGEST_GAP:.0%}, or a thread had less than "
    f"{LEAST_CPU_SHARE:.0%} of its core"
)


def point_label(point: tuple[str, int], shape_varies: bool, batch_varies: bool) -> str:
    """Return a point of a sweep as text: the part that varies."""
    parts = [shape_text(point[0])] if shape_varies or not batch_varies else []
    parts += [f"batch {point[1]}"] if batch_varies else []
    return ", ".join(parts)
