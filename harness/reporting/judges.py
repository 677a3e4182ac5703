"""What the records say of a claim: one function for each kind of test, named by `judge` in a suite of claims.

A judge sees the plan of the claim's suite, the lines of its results and its records, all of whose trials have run. It
states numbers that are in them, and nothing else.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from harness.records import Record
from harness.reporting.cells import EMPTY, OPERATIONS, Line
from harness.reporting.likelihoods import UNITS, ranking, unit_of
from harness.reporting.rendering import Table
from harness.reporting.runtime_points import merged
from harness.reporting.tables_differences import difference_text

if TYPE_CHECKING:
    from harness.planning.plan import Plan

Holds = Literal["holds", "holds in part", "does not hold", "undecided"]
HOLDS: Holds = "holds"
IN_PART: Holds = "holds in part"
FAILS: Holds = "does not hold"
UNDECIDED: Holds = "undecided"

SUBJECT = "butterfly"  # the row that the claims are about
FACTOR = 2  # "less than half"


@dataclass(frozen=True)
class Verdict:
    """What a judge says.

    Attributes:
        holds: in a word or two.
        text: the numbers behind it.
        tables: of its own.
    """

    holds: Holds
    text: str
    tables: tuple[Table, ...] = ()


Judge = Callable[["Plan", Sequence[Line], Sequence[Record]], Verdict]


def accounting(plan: Plan, lines: Sequence[Line], records: Sequence[Record]) -> Verdict:
    """Whether what the released accounting calls a likelihood can be one: it cannot below the resolution floor."""
    claimed = [line for line in lines if line.get("claimed") is not None]
    if not claimed:
        return Verdict(UNDECIDED, _failures(lines))
    unit = UNITS[claimed[0]["unit"]]
    rows = []
    for line in claimed:
        measure, floor = line["unit"], line.get("floor")
        other = [
            one for one in lines if one["layer"] == line["layer"] and one is not line and one.get("claimed") is None
        ]
        fair = [one[measure] for one in other if one["status"] == "ok" and one.get(measure) is not None]
        rows.append(
            (
                line["layer"],
                line["dataset"],
                f"{line['claimed']:.2f}",
                f"{line[measure]:.2f}",
                EMPTY if floor is None else f"{floor:.2f}",
                f"{statistics.fmean(fair):.2f}" if fair else EMPTY,
            )
        )
    below = [line for line in claimed if line.get("floor") is not None and line["claimed"] < line["floor"]]
    lowest = min(claimed, key=lambda line: line["claimed"])
    text = (
        f"After training on the released accounting, {lowest['layer']} claims {lowest['claimed']:.2f} {unit}; counted "
        f"rightly the same weights give {lowest[lowest['unit']]:.2f}. "
    )
    if below:
        text += (
            f"{len(below)} of {len(claimed)} claimed values are below the resolution floor of {below[0]['floor']:.2f}, "
            "which no density of dequantised values can pass; no true value is."
        )
    header = ("trained on the released accounting", "data", "claimed", "true", "floor", "trained and counted rightly")
    table = Table(f"{plan.suite}-claimed", f"Negative log-likelihood on the test split, {unit}.", header, tuple(rows))
    gap = max(line[line["unit"]] - line["claimed"] for line in claimed)
    return Verdict(FAILS if below or gap > 0.05 else HOLDS, text, (table,))


def parameters(plan: Plan, lines: Sequence[Line], records: Sequence[Record]) -> Verdict:
    """Less than half of the parameters: at the published widths, and at equal ones."""
    counted = [line for line in lines if line.get("parameters") is not None]
    published = {line["layer"]: line for line in counted if line.get("published") is not None}
    mine = published.get(SUBJECT)
    others = [line for row, line in published.items() if row != SUBJECT]
    if mine is None or not others:
        return Verdict(UNDECIDED, _failures(lines))
    least = min(others, key=lambda line: line["parameters"])
    text = (
        f"As published, {SUBJECT} of coupling width {mine['width']} has {mine['parameters']:,} parameters, the "
        f"smallest other model ({least['layer']}, width {least['width']}) {least['parameters']:,}, "
        f"{least['parameters'] / mine['parameters']:.2f} times as many."
    )
    holds_published = FACTOR * mine["parameters"] < least["parameters"]
    holds_equal = True
    for width in sorted({line["width"] for line in counted}):
        same = {line["layer"]: line["parameters"] for line in counted if line["width"] == width}
        if SUBJECT in same and len(same) > 1:
            rest = {row: count for row, count in same.items() if row != SUBJECT}
            row = min(rest, key=lambda name: rest[name])
            text += f" At width {width} for all it has {same[SUBJECT]:,}, {row} {rest[row]:,}."
            holds_equal = holds_equal and FACTOR * same[SUBJECT] < rest[row]
    return Verdict(HOLDS if holds_published and holds_equal else IN_PART if holds_published else FAILS, text)


def mixing(plan: Plan, lines: Sequence[Line], records: Sequence[Record]) -> Verdict:
    """Any permutation: exactly where D is a power of two, and not where entries never meet."""
    mixed = [line for line in lines if line.get("classes") is not None]
    exact = [line for line in lines if line.get("realised") is not None]
    if not mixed or not exact:
        return Verdict(UNDECIDED, _failures(lines))
    alone = [line for line in mixed if line["mixer"] == "none" and line["layer"].startswith(SUBJECT)]
    split = [line for line in alone if line["classes"] > 1]
    parts = [
        f"D = {line['dataset']}: {line['realised']} of {line['draws']} random permutations are reproduced exactly by "
        f"{line['factors']} factors"
        for line in exact
    ]
    parts += [
        f"{line['layer']} at {line['dataset']}: {line['classes']} classes of entries that it never mixes, so at most "
        f"10^{line['log10_permutations']:,.0f} of all permutations"
        for line in split
    ]
    joined = [line for line in mixed if line["mixer"] != "none" and line["classes"] == 1]
    parts += [f"with the 1x1 before it, {line['layer']} at {line['dataset']} has one class" for line in joined]
    every = all(line["realised"] == line["draws"] for line in exact)
    return Verdict(HOLDS if every and not split else IN_PART if every else FAILS, "; ".join(parts) + ".")


def block_determinant(plan: Plan, lines: Sequence[Line], records: Sequence[Record]) -> Verdict:
    """Whether the LU factors of the blocks give the determinant: only where a block is one number."""
    good = [line for line in lines if line.get("blocks_error") is not None]
    if not good:
        return Verdict(UNDECIDED, _failures(lines))
    wrong = [line for line in good if line["blocks_error"] > 1e-6]
    text = ", ".join(f"C = {line['block_size']}: {line['blocks_error']:.1e} nats" for line in good)
    text = f"Error of the log-det that the LU factors of the blocks give, for one pair: {text}. "
    text += (
        "Where C > 1 the determinant of [[A, B], [C, D]] is no function of those of its blocks; this layer takes the "
        "PLU factors of the whole 2C x 2C matrix instead (error at most "
        f"{max(line['layer_error'] for line in good):.0e})."
    )
    return Verdict(FAILS if wrong else HOLDS, text)


def singularity(plan: Plan, lines: Sequence[Line], records: Sequence[Record]) -> Verdict:
    """Whether training kept every layer on its side of the singular matrices."""
    rows, crossed = [], 0
    for record in records:
        crossings = [value for value in record.curves.get("crossings", []) if value is not None]
        smallest = [value for value in record.curves.get("smallest_singular_value", []) if value is not None]
        if record.status in ("ok", "diverged") and crossings:
            crossed += int(crossings[-1]) > 0
            least = f"{min(smallest):.2g}" if smallest else EMPTY
            trial = record.trial
            name = trial["layer"]["row"]
            rows.append(
                (name, trial["data"]["label"], str(trial["seed"]), str(int(crossings[-1])), least, record.status)
            )
    if not rows:
        return Verdict(UNDECIDED, _failures(lines))
    header = ("layer", "data", "seed", "steps that cross a singular matrix", "smallest singular value", "status")
    caption = "Signs of the layers' determinants after every step, and singular values at every evaluation."
    table = Table(f"{plan.suite}-crossings", caption, header, tuple(rows))
    text = f"In {crossed} of {len(rows)} trainings a step took a layer's determinant across zero."
    text += " The loss bounds a continuous path, not a step of finite length." if crossed else ""
    return Verdict(FAILS if crossed else HOLDS, text, (table,))


def runtime(plan: Plan, lines: Sequence[Line], records: Sequence[Record]) -> Verdict:
    """At how many points the butterfly is faster than each other layer."""
    trial = next(trial for trial in plan.trials if trial.kind == "runtime")
    points = [line for line in merged(lines, trial.threads) if line.get("median_ms") is not None]
    mine = {_point(line): line for line in points if line["layer"] == SUBJECT}
    rows, lost = [], 0
    for row in plan.rows:
        cells = []
        for operation in OPERATIONS:
            other = [line for line in points if line["layer"] == row and line["operation"] == operation]
            pairs = [(mine[_point(line)], line) for line in other if _point(line) in mine]
            if row == SUBJECT or not pairs:
                cells.append(EMPTY)
                continue
            faster = sum(one["median_ms"] < other["median_ms"] for one, other in pairs)
            ratios = [other["median_ms"] / one["median_ms"] for one, other in pairs]
            lost += len(pairs) - faster
            cells.append(f"{faster} of {len(pairs)} ({statistics.median(ratios):.2g} times as long)")
        if row != SUBJECT and any(cell != EMPTY for cell in cells):
            rows.append((row, *cells))
    if not rows:
        return Verdict(UNDECIDED, _failures(lines))
    caption = (
        f"Points of all sweeps at which {SUBJECT} is faster than the layer, and the median of the layer's time over "
        "its own."
    )
    table = Table(f"{plan.suite}-faster", caption, ("layer", *OPERATIONS.values()), tuple(rows))
    text = f"Of all points and operations, {SUBJECT} is slower than another layer in {lost} comparisons."
    return Verdict(HOLDS if not lost else IN_PART, text, (table,))


def ranked(plan: Plan, lines: Sequence[Line], records: Sequence[Record]) -> Verdict:
    """In which columns the butterfly has the lowest mean, and by how much: told apart by intervals over the seeds."""
    density = [line for line in lines if line["kind"] == "density"]
    parts, best, apart = [], 0, 0
    for column in plan.columns:
        one = ranking(plan, density, column)
        if one.best is None:
            parts.append(f"{column}: no row to compare")
            continue
        best += one.best == SUBJECT
        unit = UNITS[unit_of(density, column)]
        rest = [row for row in one.rows if row != one.best]
        means = {row: statistics.fmean(one.rows[row].values()) for row in one.rows}
        text = f"{column}: {one.best} is lowest ({means[one.best]:.3f} {unit})"
        nearest = min(rest, key=lambda row: means[row], default=None)
        found = None if nearest is None else one.behind(nearest)
        if found is not None:
            low = found.estimate.low
            apart += one.best == SUBJECT and low is not None and low > 0
            text += f", {nearest} next ({difference_text(found)})"
        behind = one.behind(SUBJECT)
        if behind is not None and nearest != SUBJECT:
            text += f", {SUBJECT} {difference_text(behind)}"
        parts.append(text)
    if apart < best == len(plan.columns):
        return Verdict(UNDECIDED, f"{'; '.join(parts)}. Too few seeds tell {SUBJECT} from the next row.")
    return Verdict(HOLDS if apart == len(plan.columns) else IN_PART if apart else FAILS, "; ".join(parts) + ".")


def settings(plan: Plan, lines: Sequence[Line], records: Sequence[Record]) -> Verdict:
    """Whether the published setting, each layer's first row in the first column, is the best of those tried."""
    density = [line for line in lines if line["kind"] == "density"]
    values = {
        (line["layer"], line["dataset"]): line[unit_of(density, line["dataset"])]
        for line in density
        if line["status"] == "ok" and line.get(unit_of(density, line["dataset"])) is not None
    }
    failed = sorted(
        {f"{line['layer']} on {line['dataset']}: {line['status']}" for line in lines if line["status"] != "ok"}
    )
    parts, beaten, compared = [], 0, 0
    families: dict[str, list[str]] = {}
    for trial in plan.trials:
        if trial.kind == "density" and trial.layer.row not in families.setdefault(trial.layer.layer, []):
            families[trial.layer.layer].append(trial.layer.row)
    for family, rows in families.items():
        mine = {key: value for key, value in values.items() if key[0] in rows}
        if len(mine) < 2:
            continue
        (row, column), value = min(mine.items(), key=lambda item: item[1])
        published = [value for key, value in mine.items() if key == (rows[0], plan.columns[0])]
        compared += 1
        parts.append(f"{family}: {value:.3f} at best ({row}; {column})")
        if published:
            beaten += not math.isclose(published[0], value)
            parts[-1] += f", {published[0]:.3f} as published"
    if not compared:
        return Verdict(UNDECIDED, _failures(lines))
    text = "; ".join(parts) + "." + (f" Without a value: {'; '.join(failed)}." if failed else "")
    return Verdict(FAILS if beaten == compared else IN_PART if beaten else HOLDS, text)


JUDGES: dict[str, Judge] = {
    "accounting": accounting,
    "parameters": parameters,
    "mixing": mixing,
    "block_determinant": block_determinant,
    "singularity": singularity,
    "runtime": runtime,
    "ranked": ranked,
    "settings": settings,
}
"""The names that `judge` may take."""


def _point(line: Line) -> tuple[str, str, str, int]:
    return line["operation"], line["sweep"], line["shape"], line["batch"]


def _failures(lines: Sequence[Line]) -> str:
    reasons = dict.fromkeys(f"{line['status']}: {line.get('reason') or 'no value'}" for line in lines)
    return f"no trial has what the test needs ({'; '.join(reasons)})."
