"""Judges of claims about layers alone: parameters, the entries that they mix, determinants, time and memory.

A row named "X of LIBRARY" is compared with the row X, which applies the same kind of matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pandas as pd

from harness.kinds.claims.verdicts import (
    SUBJECT,
    Comparison,
    Holds,
    Outcome,
    Verdict,
    compared,
    counts_text,
    of_outcomes,
)
from harness.kinds.runtime.points import APART, clearly_faster, merged
from harness.kinds.runtime.trial import RuntimeTrial
from harness.reporting.frame import Results, Row, groups_of, rows_of
from harness.reporting.tables.cells import OPERATIONS, shape_text

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
    holds: Holds = "holds in part" if len(split) else "holds"
    every = bool((exact["realised"] == exact["draws"]).all())
    return Verdict(holds if every else "does not hold", short, f"R{short[1:]}.")


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
    """Count the points at which the butterfly takes less time and memory than the layers of the publication.

    Times differ where their spreads do not meet: the interquartile range of the samples, or the gap between processes
    if that is wider. Where either time is marked as unstable, the spreads must lie a factor of two apart.
    """
    judged: dict[str, list[Outcome]] = {"time": [], "memory": []}
    for line, subject in _pairs(results, dict.fromkeys(PUBLISHED_BESIDE, SUBJECT).get):
        judged["time"].append(_faster(subject, line))
        judged["memory"] += filter(None, [_smaller(subject, line)])
    judged = {measure: outcomes for measure, outcomes in judged.items() if outcomes}
    if not judged:
        return None
    short = "; ".join(f"{measure}: {counts_text(outcomes)}" for measure, outcomes in judged.items())
    text = f"{SUBJECT} against {' and '.join(PUBLISHED_BESIDE)}: {short}."
    return Verdict(of_outcomes(outcome for of in judged.values() for outcome in of), short, text)


def speedups(results: Results) -> Verdict | None:
    """Judge "the inverse 1.17 and the log-determinant 4.31 times as fast as a dense matrix's, at 96 channels".

    A factor is reached, or missed, where the spreads of the two times and the margin of `runtime` allow nothing else.
    """
    comparisons: list[Comparison] = []
    pairs = list(_pairs(results, {"cdflow": "dense"}.get))
    for operation, claimed in SPEEDUPS.items():
        for subject, dense in pairs:
            if subject.operation != operation or not subject.shape.startswith(f"{SPEEDUP_CHANNELS}x"):
                continue
            margin = APART if subject.unstable or dense.unstable else 1
            ratio, least = dense.median_ms / subject.median_ms, max(dense.low, 0) / subject.high
            most = dense.high / subject.low if subject.low > 0 else math.inf  # a spread may be wider than the time
            outcome: Outcome = "against" if most * margin < claimed else "open"
            where = (OPERATIONS[subject.operation], shape_text(subject.shape), str(subject.batch))
            cells = (*where, f"{claimed:.2f}", f"{ratio:.2f} ({least:.2f} to {most:.2f})")
            comparisons.append(("for" if least >= claimed * margin else outcome, cells))
    caption = f"Time of the dense 1x1 convolution over that of CDFlow at {SPEEDUP_CHANNELS} channels."
    header = ("operation", "event", "batch", "claimed", "times as fast (by the spreads)")
    return compared(results, caption, header, comparisons, words=2)


def same_time(results: Results) -> Verdict | None:
    """Judge whether no layer here takes longer than the same one of a library, at every point and operation."""
    comparisons: list[Comparison] = []
    for line, ours in _pairs(results, lambda row: row.partition(OF)[0] if OF in row else None):
        ratio = line.median_ms / ours.median_ms
        outcome: Outcome = "for" if ratio >= 1 else "open" if ratio * APART > 1 else "against"
        cells = (line.layer, shape_text(line.shape), OPERATIONS[line.operation], str(line.batch), f"{ratio:.2f}")
        comparisons.append((outcome, cells))
    caption = "Time of each library's layer over that of the same kind of layer here, in the same process."
    header = ("layer", "event", "operation", "batch", "its time over ours")
    return compared(results, caption, header, comparisons, words=3)


def _pairs(results: Results, reference: Callable[[str], str | None]) -> Iterator[tuple[Row, Row]]:
    """Yield each case of a runtime suite with that of another layer, by name, at the same point."""
    threads = next(trial.threads for trial in results.plan.trials if isinstance(trial, RuntimeTrial))
    points = merged(results.of_kind("runtime"), threads).dropna(subset="median_ms")
    lines = {(line.layer, line.operation, line.sweep, line.shape, line.batch): line for line in rows_of(points)}
    for (layer, *where), line in lines.items():
        if (other := lines.get((reference(layer), *where))) is not None:
            yield line, other


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
