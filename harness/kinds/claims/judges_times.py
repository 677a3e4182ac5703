"""Judges of claims about time and memory, over the points of runtime suites.

A row named "X of LIBRARY" is compared with the row X, which applies the same kind of matrix.
"""

from __future__ import annotations

import math

import pandas as pd

from harness.kinds.claims.verdicts import SUBJECT, Outcome, Verdict, of_outcomes
from harness.kinds.runtime.points import APART, clearly_faster, merged
from harness.kinds.runtime.trial import RuntimeTrial
from harness.reporting.frame import Results, Row, groups_of, rows_of
from harness.reporting.tables.cells import EMPTY, OPERATIONS, shape_text
from harness.reporting.tables.rendering import Table

COMPARED = ("emerging", "periodic")  # the layers that the publication compares with, in the figure of the claim
LISTED = 4
SPEEDUPS = {"inverse": 1.17, "log_det": 4.31}  # claimed of CDFlow, over a dense matrix
SPEEDUP_CHANNELS = 96
OF = " of "  # before the name of a library


def runtime(results: Results) -> Verdict | None:
    """Count the points at which the butterfly takes less time and memory than each other layer.

    Times differ where their spreads do not meet: the interquartile range of the samples, or the gap between processes
    if that is wider. Where either time is marked as unstable, the spreads must lie a factor of two apart.
    """
    points = _points(results)
    subject = {(line.operation, *_point(line)): line for line in rows_of(points[points["layer"] == SUBJECT])}
    measures = {"time": _faster, "memory": _smaller}
    columns = [(measure, operation) for measure in measures for operation in OPERATIONS]
    rows, compared = [], list[tuple[str, Outcome, Row]]()
    for row in results.plan.rows:
        if row == SUBJECT:
            continue
        cells = []
        for measure, operation in columns:
            lines = rows_of(points[(points["layer"] == row) & (points["operation"] == operation)])
            pairs = [(subject.get((operation, *_point(line))), line) for line in lines]
            results_of_pairs = [(measures[measure](ours, line), line) for ours, line in pairs if ours is not None]
            outcomes = [(measure, outcome, line) for outcome, line in results_of_pairs if outcome is not None]
            compared += outcomes if row in COMPARED else []
            counts = [[outcome for _, outcome, _ in outcomes].count(kind) for kind in ("for", "against", "open")]
            cells.append(" / ".join(map(str, counts)) if outcomes else EMPTY)
        rows.append((row, *cells))
    if not compared:
        return None
    header = ("layer", *(f"{OPERATIONS[operation]}, {measure}" for measure, operation in columns))
    used = [i for i in range(len(header)) if i == 0 or any(row[i] != EMPTY for row in rows)]
    caption = (
        f"Points of all sweeps at which {SUBJECT} takes less / more time or memory than the layer / does not clearly "
        "differ from it: the spreads of two times meet or, if either is unstable, are less than a factor of two apart. "
        f"Judged are {' and '.join(COMPARED)}, which the publication compares with."
    )
    kept = tuple(tuple(row[i] for i in used) for row in rows)
    table = Table(f"{results.plan.suite}-faster", caption, tuple(header[i] for i in used), kept)
    parts = []
    for measure in measures:
        counted = [outcome for what, outcome, _ in compared if what == measure]
        if counted:
            parts.append(
                f"{measure}: less in {counted.count('for')} of {len(counted)} comparisons, more in "
                f"{counted.count('against')}, no clear difference in {counted.count('open')}"
            )
    slower = [
        f"{line.layer}, {OPERATIONS[line.operation]} at {shape_text(line.shape)}, batch {line.batch}"
        for measure, outcome, line in compared
        if outcome == "against" and measure == "time"
    ]
    text = f"{SUBJECT} against {' and '.join(COMPARED)}: {'; '.join(parts)}."
    if slower:
        more_points = f", and {len(slower) - LISTED} more" if len(slower) > LISTED else ""
        text += f" It takes longer than {'; '.join(slower[:LISTED])}{more_points}."
    return Verdict(of_outcomes(outcome for _, outcome, _ in compared), "; ".join(parts), text, (table,))


def speedups(results: Results) -> Verdict | None:
    """Judge "the inverse 1.17 and the log-determinant 4.31 times as fast as a dense matrix's, at 96 channels".

    A factor is reached, or missed, where the spreads of the two times and the margin of `runtime` allow nothing else.
    """
    points = _points(results)
    points = points[points["shape"].str.startswith(f"{SPEEDUP_CHANNELS}x")]
    lines = {(line.layer, line.operation, _point(line)): line for line in rows_of(points)}
    outcomes, rows, parts, faster = list[Outcome](), [], [], 0
    for operation, claimed in SPEEDUPS.items():
        for point in dict.fromkeys(point for _, _, point in lines):
            dense, subject = lines.get(("dense", operation, point)), lines.get(("cdflow", operation, point))
            if dense is None or subject is None:
                continue
            margin = APART if subject.unstable or dense.unstable else 1
            ratio, least = dense.median_ms / subject.median_ms, max(dense.low, 0) / subject.high
            most = dense.high / subject.low if subject.low > 0 else math.inf  # a spread may be wider than the time
            reached = least >= claimed * margin
            outcomes.append("for" if reached else "against" if most * margin < claimed else "open")
            faster += _faster(subject, dense) == "for"
            name, shape = OPERATIONS[operation], shape_text(subject.shape)
            rows.append((name, shape, str(subject.batch), f"{claimed:.2f}", f"{ratio:.2f} ({least:.2f} to {most:.2f})"))
            parts.append(f"{name} {ratio:.2f} times as fast as the dense matrix's at {shape}, batch {subject.batch}")
    if not outcomes:
        return None
    header = ("operation", "event", "batch", "claimed", "found (by the spreads)")
    caption = f"Time of the dense 1x1 convolution over that of CDFlow at {SPEEDUP_CHANNELS} channels."
    table = Table(f"{results.plan.suite}-speedups", caption, header, tuple(rows), words=frozenset({0, 1}))
    claims = " and ".join(f"{claimed} ({OPERATIONS[operation]})" for operation, claimed in SPEEDUPS.items())
    text = (
        f"CDFlow, where {claims} is claimed: {'; '.join(parts)}. It reaches its factor in {outcomes.count('for')} of "
        f"{len(outcomes)} comparisons, misses it in {outcomes.count('against')}, and is clearly faster in {faster}."
    )
    short = f"factors {', '.join(f'{row[4].split()[0]} ({row[0]}, {row[1]})' for row in rows)}; claimed {claims}"
    return Verdict(of_outcomes(outcomes), short, text, (table,))


def same_time(results: Results) -> Verdict | None:
    """Judge whether no layer here takes longer than the same one of a library, at every point and operation."""
    outcomes, rows = list[Outcome](), []
    for (shape, batch, operation), point in groups_of(_points(results), ["shape", "batch", "operation"]):
        times = {line.layer: line.median_ms for line in rows_of(point)}
        for row, time in times.items():
            reference = row.partition(OF)[0]
            if row == reference or reference not in times:
                continue
            ratio = time / times[reference]
            outcomes.append("for" if ratio >= 1 else "open" if ratio * APART > 1 else "against")
            rows.append((row, shape_text(shape), str(batch), OPERATIONS[operation], f"{ratio:.2f}"))
    if not rows:
        return None
    header = ("layer", "event", "batch", "operation", "its time over ours")
    caption = "Time of each library's layer over that of the same kind of layer here, in the same process."
    short = f"ours takes longer in {len(rows) - outcomes.count('for')} of {len(rows)} comparisons"
    text = f"O{short[1:]}, in {outcomes.count('against')} of them by a factor of {APART} or more."
    table = Table(f"{results.plan.suite}-ratios", caption, header, tuple(rows), words=frozenset({3}))
    return Verdict(of_outcomes(outcomes), short, text, (table,))


def _points(results: Results) -> pd.DataFrame:
    """Return the measured points of a runtime suite, the processes of each together."""
    threads = next(trial.threads for trial in results.plan.trials if isinstance(trial, RuntimeTrial))
    return merged(results.of_kind("runtime"), threads).dropna(subset="median_ms")


def _point(line: Row) -> tuple[str, str, int]:
    return line.sweep, line.shape, line.batch


def _faster(subject: Row, other: Row) -> Outcome:
    if clearly_faster(subject, other):
        return "for"
    return "against" if clearly_faster(other, subject) else "open"


def _smaller(subject: Row, other: Row) -> Outcome | None:
    """Compare by the allocator's count, which is the same at every call; None where nothing was counted."""
    if pd.isna(subject.peak_bytes) or pd.isna(other.peak_bytes):
        return None
    outside = pd.notna(subject.outside_bytes) or pd.notna(other.outside_bytes)  # the count leaves some memory out
    if outside or subject.peak_bytes == other.peak_bytes:
        return "open"
    return "for" if subject.peak_bytes < other.peak_bytes else "against"


JUDGES = (runtime, speedups, same_time)
