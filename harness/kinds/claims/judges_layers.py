"""Judges of claims about layers alone: their parameters, which entries they mix, their determinants, their cost."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from harness.kinds.claims.verdicts import (
    FAILS,
    HOLDS,
    IN_PART,
    SUBJECT,
    Outcome,
    Verdict,
    nothing_to_judge,
    of_outcomes,
)
from harness.kinds.examination.tables import power
from harness.kinds.runtime.points import APART, clearly_faster, merged
from harness.kinds.runtime.trial import RuntimeTrial
from harness.reporting.frame import Results, Row, groups_of, rows_of
from harness.reporting.tables.cells import EMPTY, OPERATIONS, shape_text
from harness.reporting.tables.rendering import Table

FACTOR = 2  # "less than half"
ROUNDING = 1e-6  # nats; a larger error of a log-determinant in float64 is not rounding
COMPARED = ("emerging", "periodic")  # the layers that the publication times beside its own, in the figure of the claim
LISTED = 4
SPEEDUPS = {"inverse": 1.17, "log_det": 4.31}  # claimed of CDFlow, over a dense matrix
SPEEDUP_CHANNELS = 96


def parameters(results: Results) -> Verdict:
    """Judge "less than half of the parameters": at the published widths, and at equal ones."""
    counted = results.frame.dropna(subset="parameters")
    published = counted.dropna(subset="published").sort_values("parameters", kind="stable")
    subject, others = published[published["layer"] == SUBJECT], published[published["layer"] != SUBJECT]
    equal = []
    for width, same in groups_of(counted.sort_values(["width", "parameters"], kind="stable"), "width"):
        counts = {line.layer: line.parameters for line in rows_of(same)}
        rest = {row: count for row, count in counts.items() if row != SUBJECT}
        if SUBJECT in counts and rest:
            equal.append((width, counts[SUBJECT], *next(iter(rest.items()))))
    if subject.empty or others.empty or not equal:
        return nothing_to_judge(results)
    own, least = subject.iloc[0], others.iloc[0]
    ratio = least["parameters"] / own["parameters"]
    text = (
        f"As published, {SUBJECT} of coupling width {own['width']} has {own['parameters']:,} parameters, the "
        f"smallest other model ({least['layer']}, width {least['width']}) {least['parameters']:,}, {ratio:.2f} times "
        "as many."
    )
    for width, count, row, other in equal:
        text += f" At width {width} for all it has {count:,}, {row} {other:,}."
    as_published = ratio > FACTOR
    at_equal = all(FACTOR * count < other for _, count, _, other in equal)
    holds = HOLDS if as_published and at_equal else IN_PART if as_published or at_equal else FAILS
    wins = sum(count < other for _, count, _, other in equal)
    short = (
        f"{ratio:.2f} times fewer than the next at its published width ({own['width']}, others {least['width']}); at "
        f"equal width it has the fewest at {wins} of {len(equal)}"
    )
    return Verdict(holds, short, text)


def mixing(results: Results) -> Verdict:
    """Judge "any permutation": it holds exactly where D is a power of two, and not where entries never meet."""
    mixed = results.frame.dropna(subset="classes")
    exact = results.frame.dropna(subset="realised")
    alone = mixed[mixed["mixer"] == "none"]
    if alone.empty or exact.empty:
        return nothing_to_judge(results)
    sizes = [
        f"{line.realised} of {line.draws} random permutations of {shape_text(line.dataset)} entries by "
        f"{line.factors} factors (within reach of one pass: a share of at most {power(line.log10_one_pass)})"
        for line in rows_of(exact)
    ]
    split = alone[alone["classes"] > 1]
    text = f"Reproduced exactly: {'; '.join(sizes)}."
    if len(split):
        apart = [f"{shape_text(line.dataset)}: {line.sizes}" for line in rows_of(split)]
        text += f" Alone, it never mixes classes of entries at {'; '.join(apart)}."
        beside = mixed[(mixed["mixer"] != "none") & mixed["dataset"].isin(split["dataset"])]
        for title, found in (("joins", beside[beside["classes"] == 1]), ("leaves", beside[beside["classes"] != 1])):
            named = [f"{line.layer} at {shape_text(line.dataset)}" for line in rows_of(found)]
            text += f" A 1x1 before it {title} them: {'; '.join(named)}." if named else ""
    every = bool((exact["realised"] == exact["draws"]).all())
    kept = "all" if every else "not all"
    short = f"{kept} random permutations of 2^k entries are reproduced by 2k - 1 factors"
    if len(split):
        short += f"; alone, it keeps classes apart at {', '.join(map(shape_text, split['dataset']))}"
    return Verdict(FAILS if not every else IN_PART if len(split) else HOLDS, short, text)


def block_determinant(results: Results) -> Verdict:
    """Judge whether the LU factors of the blocks give the determinant: only where a block is one number."""
    good = results.frame.dropna(subset="blocks_error").sort_values("block_size", kind="stable")
    blocks = good[good["block_size"] > 1]
    if blocks.empty:
        return nothing_to_judge(results)
    wrong = blocks[blocks["blocks_error"] > ROUNDING]
    errors = ", ".join(f"{line.blocks_error:.1g} at C = {line.block_size}" for line in rows_of(good))
    text = (
        f"Error of the log-determinant of one pair that the LU factors of its blocks give, in nats: {errors}. The "
        f"layer's own, by the PLU factors of the whole 2C x 2C matrix, is wrong by at most "
        f"{good['layer_error'].max():.0e}."
    )
    if wrong.empty:
        return Verdict(HOLDS, "the LU factors of the blocks give the determinant", text)
    text += " The determinant of four blocks is no function of the four determinants."
    worst = wrong["blocks_error"]
    short = (
        f"where C > 1 the LU factors of the blocks do not give it: wrong by {worst.min():.2g} to {worst.max():.2g} "
        "nats for one pair"
    )
    return Verdict(FAILS if len(wrong) == len(blocks) else IN_PART, short, text)


def runtime(results: Results) -> Verdict:
    """Count the points at which the butterfly takes less time and memory than each other layer.

    Times differ where their spreads do not meet: the interquartile range of the samples, or the gap between processes
    if that is wider. Where either time is marked as unstable, the spreads must lie a factor of two apart.
    """
    plan, points = results.plan, _points(results)
    own = {(line.operation, *_point(line)): line for line in rows_of(points[points["layer"] == SUBJECT])}
    rows, judged = [], list[tuple[str, Outcome, Row]]()
    for row in plan.rows:
        if row == SUBJECT:
            continue
        cells = []
        for measure, compare in (("time", _faster), ("memory", _smaller)):
            for operation in OPERATIONS:
                others = rows_of(points[(points["layer"] == row) & (points["operation"] == operation)])
                pairs = [(own[operation, *_point(line)], line) for line in others if (operation, *_point(line)) in own]
                outcomes = [
                    (outcome, line) for subject, line in pairs if (outcome := compare(subject, line)) is not None
                ]
                if row in COMPARED:
                    judged += [(measure, outcome, line) for outcome, line in outcomes]
                cells.append(_tally([outcome for outcome, _ in outcomes]))
        rows.append((row, *cells))
    if not judged:
        return nothing_to_judge(results)
    header = ("layer", *(f"{name}, {what}" for what in ("time", "memory") for name in OPERATIONS.values()))
    used = [i for i in range(len(header)) if i == 0 or any(row[i] != EMPTY for row in rows)]
    caption = (
        f"Points of all sweeps at which {SUBJECT} takes less / more time or memory than the layer / does not clearly "
        "differ from it: the spreads of two times meet or, if either is unstable, are less than a factor of two apart. "
        f"Judged are {' and '.join(COMPARED)}, which the publication compares with."
    )
    kept = tuple(tuple(row[i] for i in used) for row in rows)
    table = Table(f"{plan.suite}-faster", caption, tuple(header[i] for i in used), kept)
    parts = []
    for measure in ("time", "memory"):
        found = [outcome for what, outcome, _ in judged if what == measure]
        if found:
            parts.append(
                f"{measure}: less in {found.count('for')} of {len(found)} comparisons, more in "
                f"{found.count('against')}, no clear difference in {found.count('open')}"
            )
    lost = [
        f"{line.layer}, {OPERATIONS[line.operation]} at {shape_text(line.shape)}, batch {line.batch}"
        for measure, outcome, line in judged
        if outcome == "against" and measure == "time"
    ]
    text = f"{SUBJECT} against {' and '.join(COMPARED)}: {'; '.join(parts)}."
    if lost:
        more = f", and {len(lost) - LISTED} more" if len(lost) > LISTED else ""
        text += f" It takes longer than {'; '.join(lost[:LISTED])}{more}."
    return Verdict(of_outcomes(outcome for _, outcome, _ in judged), "; ".join(parts), text, (table,))


def speedups(results: Results) -> Verdict:
    """Judge "the inverse 1.17 and the log-determinant 4.31 times as fast as a dense matrix's, at 96 channels".

    A factor is reached, or missed, where the spreads of the two times and the margin of `runtime` allow nothing else.
    """
    points = _points(results)
    points = points[points["shape"].str.startswith(f"{SPEEDUP_CHANNELS}x")]
    lines = {(line.layer, line.operation, _point(line)): line for line in rows_of(points)}
    outcomes, rows, parts, faster = list[Outcome](), [], [], 0
    for operation, claimed in SPEEDUPS.items():
        for point in dict.fromkeys(point for _, _, point in lines):
            dense, own = lines.get(("dense", operation, point)), lines.get(("cdflow", operation, point))
            if dense is None or own is None:
                continue
            margin = APART if own.unstable or dense.unstable else 1
            ratio, least = dense.median_ms / own.median_ms, max(dense.low, 0) / own.high
            most = dense.high / own.low if own.low > 0 else math.inf  # a spread may be wider than the time itself
            reached = least >= claimed * margin
            outcomes.append("for" if reached else "against" if most * margin < claimed else "open")
            faster += _faster(own, dense) == "for"
            name, shape = OPERATIONS[operation], shape_text(own.shape)
            rows.append((name, shape, str(own.batch), f"{claimed:.2f}", f"{ratio:.2f} ({least:.2f} to {most:.2f})"))
            parts.append(f"{name} {ratio:.2f} times as fast as the dense matrix's at {shape}, batch {own.batch}")
    if not outcomes:
        return nothing_to_judge(results)
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


def _tally(found: Sequence[Outcome]) -> str:
    return " / ".join(str(found.count(outcome)) for outcome in ("for", "against", "open")) if found else EMPTY
