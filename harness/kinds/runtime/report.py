"""The report of a runtime suite: for each sweep times, their growth and memory, and the fastest layers."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np
import pandas as pd

from harness.kinds.runtime.points import (
    APART,
    LARGEST_CPU_SHARE,
    LARGEST_DRIFT,
    LARGEST_GAP,
    LARGEST_SPREAD,
    LEAST_CPU_SHARE,
    clearly_faster,
    growth,
    largest,
    merged,
)
from harness.kinds.runtime.trial import RuntimeTrial
from harness.reporting.compare.measure import Measure, Spread
from harness.reporting.frame import Results, Row, groups_of, rows_of
from harness.reporting.page.answer import Answer, Finding, first_of, listed
from harness.reporting.report import Report
from harness.reporting.tables.cells import (
    EMPTY,
    OPERATIONS,
    Notes,
    device_text,
    failed_cell,
    fallbacks,
    kernel_remarks,
    layer_cell,
    milliseconds,
    shape_text,
    threads_text,
    time_cell,
)
from harness.reporting.tables.rendering import Table

UNSTABLE = " †"
Rows = Sequence[tuple[str, ...]]

ASKED = (("forward_backward", "forward"), ("inverse",))
"""Operations that stand for a step of training and for a sample, each with the one taken where it was not timed."""


def spread(rows: Sequence[Row]) -> Spread:
    """Return the median over processes, with the interquartile range or, if wider, the range of the processes."""
    medians = [row.median_ms for row in rows]
    middle = statistics.median(medians)
    gap = middle * (max(medians) / min(medians) - 1)
    half = max(gap, *(row.iqr_ms for row in rows)) / 2
    return middle - half, middle, middle + half


class RuntimeReport(Report, kind="runtime"):
    """Times by sweep with their growth and memory, and the fastest layers."""

    measure: ClassVar[Measure] = Measure(
        value=lambda row: row.median_ms,
        text=lambda rows: f"{milliseconds(spread(rows)[1])} ms",
        spread=spread,
    )

    @cached_property
    def sweeps(self) -> list[SweepTables]:
        """The sweeps that have rows, in order."""
        return [SweepTables(self.results, name) for name in self.results.frame["sweep"].dropna().unique()]

    @cached_property
    def tables(self) -> list[Table]:
        """For each sweep a table of times per operation, of their growth, and of memory; a row per layer."""
        made: list[Table | None] = []
        for sweep in self.sweeps:
            made += [sweep.times(operation) for operation in sweep.operations]
            made += [sweep.growth(), sweep.memory()]
        return [table for table in made if table is not None]

    @cached_property
    def answer(self) -> Answer | None:
        """Two findings per sweep, for training and samples, and the first figure; None without times of two layers."""
        findings = tuple(finding for sweep in self.sweeps for finding in _findings(sweep))
        if not findings:
            return None
        said = (
            f"Layers differ clearly where the spreads of their times do not meet and, where either is marked as "
            f"unstable, lie a factor of {APART} apart.",
        )
        left = ("Times of another machine, of other sizes, or of a whole flow.",)
        return Answer(findings, (("Compared", said), ("Not said", left)), ("runtime-",))


class SweepTables:
    """The points of one sweep, for all of its tables."""

    def __init__(self, results: Results, name: str) -> None:
        self.results, self.plan, self.name = results, results.plan, name
        self.fallbacks = fallbacks(results)
        trials = [trial for trial in self.plan.trials if isinstance(trial, RuntimeTrial) and trial.sweep == name]
        self.trial = trials[0]
        self.processes = 1 + max(trial.process for trial in trials)
        frame = results.frame[results.frame["sweep"] == name]
        self.measured = merged(frame, self.trial.threads)
        self.points = list(self.measured[["shape", "batch"]].drop_duplicates().itertuples(index=False, name=None))
        self.operations = list(self.measured["operation"].unique())
        self.by_case = {(line.operation, line.layer, line.shape, line.batch): line for line in rows_of(self.measured)}
        shapes, batches = ({point[i] for point in self.points} for i in (0, 1))
        self.header = []
        for shape, batch in self.points:
            parts = [shape_text(shape)] if len(shapes) > 1 or len(batches) == 1 else []
            parts += [f"batch {batch}"] if len(batches) > 1 else []
            self.header.append(", ".join(parts))
        self.fixed = f", batch {self.points[0][1]}" if len(batches) == 1 else ""
        self.fixed += f", shape {shape_text(self.points[0][0])}" if len(shapes) == 1 else ""
        self.rest = (
            f"Profile {self.plan.profile}, {device_text(self.plan.device, frame)}, {self.trial.dtype}, "
            f"{threads_text(self.trial.threads)}."
        )

    def times(self, operation: str) -> Table:
        """Return median and interquartile range of an operation."""
        notes, served, rows = Notes(), list[str](), list[tuple[str, ...]]()
        for row in self.plan.rows:
            cells = []
            for point, label in zip(self.points, self.header, strict=True):
                line = self.by_case.get((operation, row, *point))
                if line is None:
                    cells.append(EMPTY)
                    continue
                cells.append(time_cell(line, notes, self.fallbacks) + UNSTABLE * bool(line.unstable))
                served += [] if pd.isna(line.remark) else [f"{row} at {label}: {line.remark}"]
            rows.append((layer_cell(row, self.measured, notes), *cells))
        timed = self.measured[self.measured["operation"] == operation]
        remarks = (*notes.numbered(), *served, *kernel_remarks(self.results, timed))
        if timed["unstable"].any():
            remarks += (f"† unstable: {BOUNDS}.",)
        return self._table(operation, self._times_caption(operation), rows, remarks, self.header)

    def growth(self) -> Table | None:
        """Return the exponents of the growth of every layer's times over the largest points; None where none fits."""
        points, notes = largest(self.measured), Notes()
        rows = []
        for row in self.plan.rows:
            cells = []
            for operation in self.operations:
                times = points[(points["layer"] == row) & (points["operation"] == operation)]
                fit = growth(times)
                mark = UNSTABLE * bool(times["unstable"].any())
                cells.append(EMPTY if fit is None else f"{fit[0]:.2f} ± {fit[1]:.2f}{mark}")
            rows.append((layer_cell(row, self.measured, notes), *cells))
        if all(cell == EMPTY for _, *cells in rows for cell in cells):
            return None
        sizes = {"D": points["entries"] // points["batch"], "batch": points["batch"]}
        span = " and ".join(
            f"{name} = {size.min():,} to {size.max():,}" for name, size in sizes.items() if size.nunique() > 1
        )
        caption = (
            f"growth, p where time goes as entries to the power of p, from {span}{self.fixed}; by least squares "
            "through the logarithms of three median times or more, ± 95 % interval"
        )
        remarks = (*notes.numbered(), *("† a fitted time is unstable",) * bool(points["unstable"].any()))
        header = [OPERATIONS[operation] for operation in self.operations]
        return self._table("growth", caption, rows, remarks, header)

    def memory(self) -> Table | None:
        """Return the peak memory of every operation, in sizes of the point's tensor; None where none was counted."""
        if self.measured["peak_bytes"].isna().all():
            return None
        notes, rows = Notes(), list[tuple[str, ...]]()
        for row in self.plan.rows:
            cells = []
            for point in self.points:
                lines = [self.by_case.get((operation, row, *point)) for operation in self.operations]
                parts = [EMPTY if line is None else self._memory_cell(line, notes) for line in lines]
                cells.append(parts[0] if len(set(parts)) == 1 and "[" in parts[0] else " / ".join(parts))
            rows.append((layer_cell(row, self.measured, notes), *cells))
        names = " / ".join(OPERATIONS[operation] for operation in self.operations)
        caption = (
            f"peak memory of {names}, beyond what was held before, as torch's allocator counts it, in sizes of the "
            f"point's tensor{self.fixed}"
        )
        return self._table("memory", caption, rows, notes.numbered(), self.header)

    def _memory_cell(self, line: Row, notes: Notes) -> str:
        if pd.isna(line.peak_bytes):
            return failed_cell(line, notes) if line.status != "ok" else EMPTY
        size = np.dtype(self.trial.dtype).itemsize * line.entries
        mark = ""
        if pd.notna(line.outside_bytes):
            outside = f"{line.outside_bytes / size:.1f} outside torch's allocator, which are not counted"
            mark = notes.mark(f"{line.layer}: takes up to {outside}")
        return f"{line.peak_bytes / size:.1f}{mark}"

    def _table(self, name: str, caption: str, rows: Rows, remarks: tuple[str, ...], header: Sequence[str]) -> Table:
        about = (f"{self.plan.suite}-{self.name}-{name}", f"{self.name}: {caption}. {self.rest}", ("layer", *header))
        return Table(*about, tuple(rows), remarks, detail=name not in OPERATIONS)

    def _times_caption(self, operation: str) -> str:
        """Return what was timed and how."""
        timing = self.trial.timing
        times = f" in each of {self.processes} processes" if self.processes > 1 else ""
        calls = f"{timing.warmup} warm-up call{'s' if timing.warmup > 1 else ''}"
        least = f" and {timing.warmup_seconds:g} s" if timing.warmup_seconds else ""
        ended_early = (self.measured["rounds"] < timing.rounds).any()
        early = f", fewer where they took more than {timing.budget_seconds:g} s" if ended_early else ""
        return (
            f"{OPERATIONS[operation]}. Milliseconds, median (interquartile range) of {timing.rounds} samples{times}"
            f"{early}, layers alternating, after {calls}{least}{self.fixed}"
        )


BOUNDS = (
    f"the interquartile range exceeds {LARGEST_SPREAD:.0%} of the median, the halves of the rounds differ by more "
    f"than {LARGEST_DRIFT:.0%}, processes by more than {LARGEST_GAP:.0%}, or a thread had less than "
    f"{LEAST_CPU_SHARE:.0%} of its core, or a layer used more than {LARGEST_CPU_SHARE:g} cores for each thread"
)


def _findings(sweep: SweepTables) -> Iterator[Finding]:
    points = sweep.measured.dropna(subset="median_ms")
    for operations in ASKED:
        times = [group for name in operations if len(group := points[points["operation"] == name])][:1]
        points_of = [group for each in times for _, group in groups_of(each, ["shape", "batch"]) if len(group) > 1]
        if points_of:
            yield _finding(sweep.name, max(points_of, key=lambda group: group["entries"].iloc[0]))


def _finding(sweep: str, point: pd.DataFrame) -> Finding:
    first, *others = rows_of(point.sort_values("median_ms", kind="stable"))
    close = [line for line in others if not clearly_faster(first, line)]
    slower = [line for line in others if clearly_faster(first, line)]
    text = _time(first)
    if close:
        text += f"; no clear difference from {listed([_time(line) for line in close])}"
    if slower:
        text += f"; clearly slower: {first_of([_time(line) for line in slower])}"
    where = f"{sweep}: {OPERATIONS[first.operation]}, {shape_text(first.shape)}, batch {first.batch}"
    if close:
        return Finding(where, "no single fastest", "open", f"{text}.")
    return Finding(where, "clearly fastest", "good", f"{text}.")


def _time(line: Row) -> str:
    mark = " †" if line.unstable else ""
    spread = f"{milliseconds(max(line.low, 0))} to {milliseconds(line.high)}"
    return f"{line.layer} {milliseconds(line.median_ms)} ms ({spread}){mark}"
