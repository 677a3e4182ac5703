"""Judges of claims about layers alone: their parameters, which entries they mix, their determinants, their cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.core.records import Record
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
from harness.kinds.runtime.points import merged
from harness.reporting.tables.cells import EMPTY, OPERATIONS, Line, shape_text
from harness.reporting.tables.rendering import Table

if TYPE_CHECKING:
    from harness.planning.plan import Plan

FACTOR = 2  # "less than half"
ROUNDING = 1e-6  # nats; a larger error of a log-determinant in float64 is none of rounding
COMPARED = ("emerging", "periodic")  # which the publication times its layer against, in the figure of the claim
LISTED = 4
APART = 2  # times; one case timed twice on a shared machine differs by up to half as much (docs/timing.md)


def parameters(plan: Plan, lines: Sequence[Line], records: Sequence[Record]) -> Verdict:
    """Less than half of the parameters: at the published widths, and at equal ones."""
    counted = [line for line in lines if line.get("parameters") is not None]
    published = {line["layer"]: line for line in counted if line.get("published") is not None}
    mine = published.get(SUBJECT)
    others = [line for row, line in published.items() if row != SUBJECT]
    equal = []
    for width in sorted({line["width"] for line in counted}):
        same = {line["layer"]: line["parameters"] for line in counted if line["width"] == width}
        rest = {row: count for row, count in same.items() if row != SUBJECT}
        if SUBJECT in same and rest:
            equal.append((width, same[SUBJECT], *min(rest.items(), key=lambda item: item[1])))
    if mine is None or not others or not equal:
        return nothing_to_judge(lines)
    least = min(others, key=lambda line: line["parameters"])
    ratio = least["parameters"] / mine["parameters"]
    text = (
        f"As published, {SUBJECT} of coupling width {mine['width']} has {mine['parameters']:,} parameters, the "
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
        f"{ratio:.2f} times fewer than the next at its published width ({mine['width']}, others {least['width']}); at "
        f"equal width it has the fewest at {wins} of {len(equal)}"
    )
    return Verdict(holds, short, text)


def mixing(plan: Plan, lines: Sequence[Line], records: Sequence[Record]) -> Verdict:
    """Any permutation: exactly where D is a power of two, and not where entries never meet."""
    mixed = [line for line in lines if line.get("classes") is not None]
    exact = [line for line in lines if line.get("realised") is not None]
    alone = [line for line in mixed if line["mixer"] == "none"]
    if not alone or not exact:
        return nothing_to_judge(lines)
    sizes = [
        f"{line['realised']} of {line['draws']} random permutations of {shape_text(line['dataset'])} entries by "
        f"{line['factors']} factors (within reach of one pass: a share of at most {power(line['log10_one_pass'])})"
        for line in exact
    ]
    split = [line for line in alone if line["classes"] > 1]
    beside = [line for line in mixed if line["mixer"] != "none"]
    apart = [f"{shape_text(line['dataset'])}: {line['sizes']}" for line in split]
    text = f"Reproduced exactly: {'; '.join(sizes)}."
    if split:
        text += f" Alone, it never mixes classes of entries at {'; '.join(apart)}."
        where = {line["dataset"] for line in split}
        for title, some in (("joins", True), ("leaves", False)):
            found = [line for line in beside if line["dataset"] in where and (line["classes"] == 1) == some]
            named = [f"{line['layer']} at {shape_text(line['dataset'])}" for line in found]
            text += f" A 1x1 before it {title} them: {'; '.join(named)}." if named else ""
    every = all(line["realised"] == line["draws"] for line in exact)
    kept = "all" if every else "not all"
    short = f"{kept} random permutations of 2^k entries are reproduced by 2k - 1 factors"
    if split:
        short += f"; alone, it keeps classes apart at {', '.join(shape_text(line['dataset']) for line in split)}"
    return Verdict(FAILS if not every else IN_PART if split else HOLDS, short, text)


def block_determinant(plan: Plan, lines: Sequence[Line], records: Sequence[Record]) -> Verdict:
    """Whether the LU factors of the blocks give the determinant: only where a block is one number."""
    good = sorted((line for line in lines if line.get("blocks_error") is not None), key=lambda line: line["block_size"])
    blocks = [line for line in good if line["block_size"] > 1]
    if not blocks:
        return nothing_to_judge(lines)
    wrong = [line for line in blocks if line["blocks_error"] > ROUNDING]
    errors = ", ".join(f"{line['blocks_error']:.1g} at C = {line['block_size']}" for line in good)
    text = (
        f"Error of the log-determinant of one pair that the LU factors of its blocks give, in nats: {errors}. The "
        f"layer's own, by the PLU factors of the whole 2C x 2C matrix, is wrong by at most "
        f"{max(line['layer_error'] for line in good):.0e}."
    )
    if not wrong:
        return Verdict(HOLDS, "the LU factors of the blocks give the determinant", text)
    text += " The determinant of four blocks is no function of the four determinants."
    worst = [line["blocks_error"] for line in wrong]
    short = (
        f"where C > 1 the LU factors of the blocks do not give it: wrong by {min(worst):.2g} to {max(worst):.2g} nats "
        "for one pair"
    )
    return Verdict(FAILS if len(wrong) == len(blocks) else IN_PART, short, text)


def runtime(plan: Plan, lines: Sequence[Line], records: Sequence[Record]) -> Verdict:
    """At how many points the butterfly takes less time and memory than each other layer.

    Times are told apart where their spreads do not meet: the interquartile range of the samples, or what lies between
    processes if that is wider. Where either time is marked as unstable, the spreads must lie a factor of two apart.
    """
    trial = next(trial for trial in plan.trials if trial.kind == "runtime")
    points = [line for line in merged(lines, trial.threads) if line.get("median_ms") is not None]
    mine = {_point(line): line for line in points if line["layer"] == SUBJECT}
    others = [row for row in plan.rows if row != SUBJECT]
    rows, judged = [], list[tuple[str, Outcome, Line]]()
    for row in others:
        cells = []
        for measure, compare in (("time", _faster), ("memory", _smaller)):
            for operation in OPERATIONS:
                pairs = [
                    (mine[_point(line)], line)
                    for line in points
                    if line["layer"] == row and line["operation"] == operation and _point(line) in mine
                ]
                told = [(outcome, line) for one, line in pairs if (outcome := compare(one, line)) is not None]
                if row in COMPARED:
                    judged += [(measure, outcome, line) for outcome, line in told]
                cells.append(_tally([outcome for outcome, _ in told]))
        rows.append((row, *cells))
    if not judged:
        return nothing_to_judge(lines)
    header = ("layer", *(f"{name}, {what}" for what in ("time", "memory") for name in OPERATIONS.values()))
    used = [i for i in range(len(header)) if i == 0 or any(row[i] != EMPTY for row in rows)]
    caption = (
        f"Points of all sweeps at which {SUBJECT} takes less / more time or memory than the layer / is not told apart "
        "from it: where the spreads of two times meet or, if either is unstable, do not lie a factor of two apart. "
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
                f"{found.count('against')}, not told apart in {found.count('open')}"
            )
    lost = [
        f"{line['layer']}, {OPERATIONS[line['operation']]} at {shape_text(line['shape'])}, batch {line['batch']}"
        for measure, outcome, line in judged
        if outcome == "against" and measure == "time"
    ]
    text = f"{SUBJECT} against {' and '.join(COMPARED)}: {'; '.join(parts)}."
    if lost:
        more = f", and {len(lost) - LISTED} more" if len(lost) > LISTED else ""
        text += f" It takes longer than {'; '.join(lost[:LISTED])}{more}."
    return Verdict(of_outcomes(outcome for _, outcome, _ in judged), "; ".join(parts), text, (table,))


def _point(line: Line) -> tuple[str, str, str, int]:
    return line["operation"], line["sweep"], line["shape"], line["batch"]


def _faster(mine: Line, other: Line) -> Outcome:
    margin = APART if mine["unstable"] or other["unstable"] else 1
    (least, most), (other_least, other_most) = _ends(mine), _ends(other)
    if margin * most < other_least:
        return "for"
    return "against" if margin * other_most < least else "open"


def _ends(point: Line) -> tuple[float, float]:
    middle = point["median_ms"]
    half = max(point["iqr_ms"], (point["gap"] or 0.0) * middle) / 2
    return middle - half, middle + half


def _smaller(mine: Line, other: Line) -> Outcome | None:
    """By the allocator's count, which is the same at every call; None where there is none."""
    one, rest = mine.get("peak_bytes"), other.get("peak_bytes")
    if one is None or rest is None:
        return None
    return "open" if one == rest else "for" if one < rest else "against"


def _tally(found: Sequence[Outcome]) -> str:
    return " / ".join(str(found.count(one)) for one in ("for", "against", "open")) if found else EMPTY
