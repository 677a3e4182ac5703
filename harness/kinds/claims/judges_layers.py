"""Judges of claims about layers alone: parameters, the entries that they mix, determinants, time and memory.

A row named "X of LIBRARY" is compared with the row X, which applies the same kind of matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from harness.kinds.claims.verdicts import (
    FAILS,
    HOLDS,
    IN_PART,
    SUBJECT,
    Comparison,
    Outcome,
    Verdict,
    compared,
    counts_text,
    of_outcomes,
)
from harness.kinds.runtime.points import APART, clearly_faster, merged
from harness.kinds.runtime.trial import RuntimeTrial
from harness.reporting.frame import Results, Row, groups_of, rows_of
from harness.reporting.tables.cells import OPERATIONS, grid, shape_text
from harness.reporting.tables.rendering import Table

FACTOR = 2  # "less than half"
ROUNDING = 1e-6  # nats; a larger error of a log-determinant in float64 is not rounding
PUBLISHED_BESIDE = ("emerging", "periodic")  # the layers that the publication compares with, in the claim's figure
SPEEDUPS = {"inverse": 1.17, "log_det": 4.31}  # claimed of CDFlow, over a dense matrix
SPEEDUP_CHANNELS = 96
OF = " of "  # before the name of a library


def parameters(results: Results) -> Verdict | None:
    """Judge "less than half of the parameters": at the published widths, and at equal ones."""
    counted = results.frame.dropna(subset="parameters").sort_values("parameters", kind="stable")
    groups = [("as published", counted.dropna(subset="published"))]
    groups += [(f"width {width}", same) for width, same in sorted(groups_of(counted, "width"))]
    comparisons: list[Comparison] = []
    for where, models in groups:
        lines = list(rows_of(models))
        subject = next((line for line in lines if line.layer == SUBJECT), None)
        other = next((line for line in lines if line.layer != SUBJECT), None)
        if subject is not None and other is not None:
            ratio = other.parameters / subject.parameters
            counts = (f"{subject.parameters:,}", f"{other.layer}, width {other.width}", f"{other.parameters:,}")
            comparisons.append(("for" if ratio > FACTOR else "against", (where, *counts, f"{ratio:.2f}")))
    if len(comparisons) < 2 or comparisons[0][1][0] != "as published":
        return None
    caption = f"Parameters of {SUBJECT}, and of the smallest other model."
    header = ("models", SUBJECT, "smallest other model", "its parameters", "times as many")
    return compared(results, caption, header, comparisons)


def mixing(results: Results) -> Verdict | None:
    """Judge "any permutation": it holds exactly where D is a power of two, and not where entries never meet."""
    exact = results.frame.dropna(subset="realised")
    alone = results.frame[(results.frame["mixer"] == "none") & results.frame["classes"].notna()]
    if alone.empty or exact.empty:
        return None
    sizes = [f"{line.realised} of {line.draws} at {shape_text(line.dataset)}" for line in rows_of(exact)]
    short = f"random permutations of 2^k entries reproduced by 2k - 1 factors: {', '.join(sizes)}"
    split = alone[alone["classes"] > 1]
    if len(split):
        short += f"; alone, it keeps classes of entries apart at {', '.join(map(shape_text, split['dataset']))}"
    every = bool((exact["realised"] == exact["draws"]).all())
    return Verdict(FAILS if not every else IN_PART if len(split) else HOLDS, short, f"R{short[1:]}.")


def block_determinant(results: Results) -> Verdict | None:
    """Judge whether the LU factors of the blocks give the determinant: only where a block is one number."""
    blocks = results.frame[results.frame["blocks_error"].notna() & (results.frame["block_size"] > 1)]
    if blocks.empty:
        return None
    lines = rows_of(blocks.sort_values("block_size", kind="stable"))
    errors = [f"{line.blocks_error:.1g} nats at C = {line.block_size}" for line in lines]
    outcomes: list[Outcome] = ["for" if error <= ROUNDING else "against" for error in blocks["blocks_error"]]
    short = f"the LU factors of the blocks are off the determinant of one pair by {', '.join(errors)}"
    return Verdict(of_outcomes(outcomes), short, f"T{short[1:]}.")


def conformance(results: Results) -> Verdict | None:
    """Judge whether every layer is what it reports; name those that are not."""
    conforms = results.frame.dropna(subset="conforms").groupby("layer", sort=False)["conforms"].all()
    if conforms.empty:
        return None
    faulty = list(conforms[~conforms].index)
    short = f"{len(faulty)} of {len(conforms)} layers have a fault" + (f": {', '.join(faulty)}" if faulty else "")
    refused = [row for row in results.plan.rows if row not in conforms.index]
    text = f"{short}." + (f" Not built: {', '.join(refused)}." if refused else "")
    return Verdict(of_outcomes("for" if good else "against" for good in conforms), short, text)


def runtime(results: Results) -> Verdict | None:
    """Count the points at which the butterfly takes less time and memory than each other layer.

    Times differ where their spreads do not meet: the interquartile range of the samples, or the gap between processes
    if that is wider. Where either time is marked as unstable, the spreads must lie a factor of two apart.
    """
    points = _points(results)
    subject = {(line.operation, *_point(line)): line for line in rows_of(points[points["layer"] == SUBJECT])}
    header, columns, judged = ["layer"], list[dict[str, str]](), dict[str, list[Outcome]]()
    for measure, compare in (("time", _faster), ("memory", _smaller)):
        for operation, name in OPERATIONS.items():
            outcomes: dict[str, list[Outcome]] = {}
            for line in rows_of(points[points["operation"] == operation]):
                ours = None if line.layer == SUBJECT else subject.get((operation, *_point(line)))
                outcome = None if ours is None else compare(ours, line)
                if outcome is not None:
                    outcomes.setdefault(line.layer, []).append(outcome)
            if outcomes:
                header.append(f"{name}, {measure}")
                columns.append({row: _counts(of_row) for row, of_row in outcomes.items()})
            for row in PUBLISHED_BESIDE:
                judged.setdefault(measure, []).extend(outcomes.get(row, []))
    judged = {measure: outcomes for measure, outcomes in judged.items() if outcomes}
    if not judged:
        return None
    caption = (
        f"Points of all sweeps at which {SUBJECT} takes less / more time or memory than the layer / does not clearly "
        "differ from it: the spreads of two times meet or, if either is unstable, are less than a factor of two apart. "
        f"Judged are {' and '.join(PUBLISHED_BESIDE)}, which the publication compares with."
    )
    rows = grid([row for row in results.plan.rows if row != SUBJECT], columns)
    table = Table(f"{results.plan.suite}-faster", caption, tuple(header), rows)
    short = "; ".join(f"{measure}: {counts_text(outcomes)}" for measure, outcomes in judged.items())
    text = f"{SUBJECT} against {' and '.join(PUBLISHED_BESIDE)}: {short}."
    return Verdict(of_outcomes(outcome for of in judged.values() for outcome in of), short, text, (table,))


def _counts(outcomes: Sequence[Outcome]) -> str:
    return " / ".join(str(outcomes.count(kind)) for kind in ("for", "against", "open"))


def speedups(results: Results) -> Verdict | None:
    """Judge "the inverse 1.17 and the log-determinant 4.31 times as fast as a dense matrix's, at 96 channels".

    A factor is reached, or missed, where the spreads of the two times and the margin of `runtime` allow nothing else.
    """
    points = _points(results)
    points = points[points["shape"].str.startswith(f"{SPEEDUP_CHANNELS}x")]
    lines = {(line.layer, line.operation, _point(line)): line for line in rows_of(points)}
    comparisons: list[Comparison] = []
    for operation, claimed in SPEEDUPS.items():
        for point in dict.fromkeys(point for _, _, point in lines):
            dense, subject = lines.get(("dense", operation, point)), lines.get(("cdflow", operation, point))
            if dense is None or subject is None:
                continue
            margin = APART if subject.unstable or dense.unstable else 1
            ratio, least = dense.median_ms / subject.median_ms, max(dense.low, 0) / subject.high
            most = dense.high / subject.low if subject.low > 0 else math.inf  # a spread may be wider than the time
            outcome: Outcome = "against" if most * margin < claimed else "open"
            where = (OPERATIONS[operation], shape_text(subject.shape), str(subject.batch))
            cells = (*where, f"{claimed:.2f}", f"{ratio:.2f} ({least:.2f} to {most:.2f})")
            comparisons.append(("for" if least >= claimed * margin else outcome, cells))
    caption = f"Time of the dense 1x1 convolution over that of CDFlow at {SPEEDUP_CHANNELS} channels."
    header = ("operation", "event", "batch", "claimed", "times as fast (by the spreads)")
    return compared(results, caption, header, comparisons, words=2)


def same_time(results: Results) -> Verdict | None:
    """Judge whether no layer here takes longer than the same one of a library, at every point and operation."""
    comparisons: list[Comparison] = []
    for (shape, batch, operation), point in groups_of(_points(results), ["shape", "batch", "operation"]):
        times = {line.layer: line.median_ms for line in rows_of(point)}
        for row, time in times.items():
            reference = row.partition(OF)[0]
            if row != reference and reference in times:
                ratio = time / times[reference]
                outcome: Outcome = "for" if ratio >= 1 else "open" if ratio * APART > 1 else "against"
                cells = (row, shape_text(shape), OPERATIONS[operation], str(batch), f"{ratio:.2f}")
                comparisons.append((outcome, cells))
    caption = "Time of each library's layer over that of the same kind of layer here, in the same process."
    header = ("layer", "event", "operation", "batch", "its time over ours")
    return compared(results, caption, header, comparisons, words=3)


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


JUDGES = (parameters, mixing, block_determinant, conformance, runtime, speedups, same_time)
