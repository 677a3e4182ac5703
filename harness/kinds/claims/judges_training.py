"""Judges of claims about trained flows: what a likelihood is, which row has the lowest, what steps do to layers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from harness.core.records import Record
from harness.kinds.claims.verdicts import (
    FAILS,
    HOLDS,
    IN_PART,
    SUBJECT,
    UNDECIDED,
    Outcome,
    Verdict,
    nothing_to_judge,
    of_outcomes,
    outcome_of,
)
from harness.reporting.statistics.likelihoods import UNITS, by_seed, has_value, ranking, suspect, unit_of
from harness.reporting.statistics.statistics import Difference, judged
from harness.reporting.tables.cells import EMPTY, Line, failed_status
from harness.reporting.tables.rendering import Table

if TYPE_CHECKING:
    from harness.planning.plan import Plan

SMALL_GAP = 0.05  # nats or bits per dimension; what is claimed beyond the truth by less may be called the same
GRANTED = 3  # standard errors, below the floor
RECENT = 0.5  # the share of the evaluations over which a gap's growth is taken


def accounting(plan: Plan, lines: Sequence[Line], records: Sequence[Record]) -> Verdict:
    """Whether what the released accounting calls a likelihood can be one: it cannot below the resolution floor."""
    claimed = [line for line in lines if line["status"] == "ok" and line.get("claimed") is not None]
    if not claimed:
        return nothing_to_judge(lines)
    unit = UNITS[claimed[0]["unit"]]
    fair: dict[str, list[float]] = {}
    for line in lines:
        if line.get("claimed") is None and has_value(line, claimed[0]["unit"]) and not suspect(line):
            fair.setdefault(line["layer"], []).append(line[line["unit"]])
    rows = tuple(
        (
            line["layer"],
            f"{line['claimed']:.2f}",
            f"{_true(line):.2f}",
            EMPTY if line.get("floor") is None else f"{line['floor']:.2f}",
            f"{statistics.fmean(fair[line['layer']]):.2f}" if line["layer"] in fair else EMPTY,
        )
        for line in claimed
    )
    header = ("layer", "claimed", "true, same weights", "floor", "trained on the true one")
    caption = f"Negative log-likelihood on the test split, {unit}, after training on the released accounting."
    table = Table(f"{plan.suite}-claimed", caption, header, rows)
    lowest = min(claimed, key=lambda line: line["claimed"])
    below = [line for line in claimed if _below_floor(line)]
    gap = _true(lowest) - lowest["claimed"]
    text = (
        f"Trained on the released accounting, {lowest['layer']} claims {lowest['claimed']:.2f} {unit}; the same "
        f"weights have {_true(lowest):.2f}. The difference is the part of the 1x1 convolutions' log-determinants that "
        "is not counted."
    )
    growth = _growth(next(record for record in records if record.id == lowest["id"]))
    if growth is not None:
        text += f" At the end of training it still grows by {growth:.2f} {unit} per 100 steps."
    if lowest["layer"] in fair:
        text += f" Trained on the true log-determinant the layer has {statistics.fmean(fair[lowest['layer']]):.2f}."
    short = f"{lowest['layer']} claims {lowest['claimed']:.2f}, has {_true(lowest):.2f} {unit}"
    if below:
        text += (
            f" {len(below)} of {len(claimed)} claimed values lie below the resolution floor of "
            f"{below[0]['floor']:.2f}, which no density of dequantised values can pass; of the true values "
            f"{_true_below(claimed)}."
        )
        return Verdict(FAILS, f"{short}; the floor is {below[0]['floor']:.2f}", text, (table,))
    if gap > SMALL_GAP:
        return Verdict(FAILS, f"{short}, so the claimed value is no likelihood of these weights", text, (table,))
    text += f" Nothing lies below the floor, and a difference of {gap:.2f} decides nothing."
    return Verdict(UNDECIDED, f"{short}: too close to tell", text, (table,))


def _true(line: Line) -> float:
    return float(line[line["unit"]])


def _below_floor(line: Line) -> bool:
    floor, error = line.get("floor"), line.get("standard_error") or 0.0
    return floor is not None and line["claimed"] < floor - GRANTED * error


def _true_below(lines: Sequence[Line]) -> str:
    count = sum(bool(line.get("below_floor")) for line in lines)
    return f"{count} do" if count else "none does"


def _growth(record: Record) -> float | None:
    """How fast (true - claimed) grows at the end of training, per 100 steps."""
    names = ("step", "true_validation", "validation")
    steps, true, claimed = (record.curves.get(name, []) for name in names)
    points = [
        (step, one - other)
        for step, one, other in zip(steps, true, claimed, strict=False)
        if step is not None and one is not None and other is not None
    ]
    if len(points) < 2:
        return None
    (first, before), (last, now) = points[int(RECENT * (len(points) - 1))], points[-1]
    return 100 * (now - before) / (last - first)


def singularity(plan: Plan, lines: Sequence[Line], records: Sequence[Record]) -> Verdict:
    """Whether training kept every matrix on its side of the singular ones; the first column is the ordinary rate."""
    rows, crossed = [], dict[str, list[bool]]()
    for record in records:
        counts = [value for value in record.curves.get("crossings", []) if value is not None]
        smallest = [value for value in record.curves.get("smallest_singular_value", []) if value is not None]
        if record.status in ("ok", "diverged") and counts:
            column = record.trial["data"]["label"]
            crossed.setdefault(column, []).append(counts[-1] > 0)
            least = f"{min(smallest):.2g}" if smallest else EMPTY
            row = record.trial["layer"]["row"]
            rows.append((row, column, str(record.trial["seed"]), str(int(counts[-1])), least, record.status))
    if not rows:
        return nothing_to_judge(lines)
    header = ("layer", "data", "seed", "determinants that crossed zero", "smallest singular value", "status")
    caption = (
        "Signs of determinants after every step (of every 2x2 matrix of a butterfly, of a 1x1's matrix, of the whole "
        "matrix of another layer), and the smallest singular value of any watched layer at any evaluation."
    )
    table = Table(f"{plan.suite}-crossings", caption, header, tuple(rows), words=frozenset({1, 5}))
    parts = [f"{sum(found)} of {len(found)} at {column}" for column, found in crossed.items()]
    text = f"Trainings in which a step took a determinant across zero: {', '.join(parts)}."
    every = [one for found in crossed.values() for one in found]
    if not any(every):
        short = f"no step crossed a singular matrix in {len(every)} trainings"
        return Verdict(HOLDS, short, f"{text} None did in these trainings, which is no proof.", (table,))
    text += " The loss is infinite at a singular matrix, which a step of finite length passes over."
    short = f"steps cross singular matrices in {sum(every)} of {len(every)} trainings ({', '.join(parts)})"
    ordinary = crossed.get(plan.columns[0], [])
    return Verdict(IN_PART if ordinary and not any(ordinary) else FAILS, short, text, (table,))


def ranked(plan: Plan, lines: Sequence[Line], records: Sequence[Record]) -> Verdict:
    """In which columns the butterfly is told to be the best, or behind another row, over paired seeds."""
    density = [line for line in lines if line["kind"] == "density"]
    parts, shorts, outcomes = [], [], list[Outcome]()
    for column in plan.columns:
        one = ranking(plan, density, column)
        if SUBJECT not in one.rows or len(one.rows) < 2:
            parts.append(f"{column}: nothing to compare")
            outcomes.append("open")
            continue
        means = {row: statistics.fmean(values.values()) for row, values in one.rows.items()}
        order = sorted(means, key=lambda row: means[row])
        text = f"{column}: {order[0]} is lowest ({means[order[0]]:.3f} {UNITS[unit_of(density, column)]})"
        if order[0] == SUBJECT:
            behind = {row: one.behind(row) for row in order[1:]}
            told = all(outcome_of(found) == "for" for found in behind.values())
            outcomes.append("for" if told else "open")
            text += f", {_behind(order[1], behind[order[1]])}"
            shorts.append(f"first on {column}" if told else f"not told from {order[1]} on {column}")
        else:
            found = one.behind(SUBJECT)
            outcomes.append("against" if outcome_of(found) == "for" else "open")
            text += f", {_behind(SUBJECT, found)}"
            place = order.index(SUBJECT) + 1
            lost = outcomes[-1] == "against"
            shorts.append(
                f"number {place} of {len(order)} on {column}" if lost else f"not told from {order[0]} on {column}"
            )
        parts.append(text)
    if not shorts:
        return nothing_to_judge(lines)
    return Verdict(of_outcomes(outcomes), f"{SUBJECT} is {', '.join(shorts)}", f"{'; '.join(parts)}.")


def _behind(row: str, found: Difference | None) -> str:
    return f"{row} {EMPTY if found is None else found.text()}"


def settings(plan: Plan, lines: Sequence[Line], records: Sequence[Record]) -> Verdict:
    """Whether the published setting, each layer's first row in the first column, beats those that differ in one thing.

    A setting that did not come to a likelihood is beaten by one that did.
    """
    density = [line for line in lines if line["kind"] == "density"]
    values: dict[tuple[str, str], Mapping[int, float]] = {}  # empty where there is no likelihood
    for row in plan.rows:
        for column in plan.columns:
            mine = [line for line in density if (line["layer"], line["dataset"]) == (row, column)]
            unit = unit_of(density, column)
            good = bool(mine) and all(has_value(line, unit) and not suspect(line) for line in mine)
            values[row, column] = by_seed(mine, unit) if good else {}
    families: dict[str, list[str]] = {}
    for layer in dict.fromkeys(layer for trial in plan.trials if trial.steps for layer in trial.layers_under_test):
        if layer.row not in families.setdefault(layer.layer, []):
            families[layer.layer].append(layer.row)
    first = plan.columns[0]
    pairs = {
        f"{row} for {rows[0]}, {column}": ((row, column), (rows[0], column))
        for rows in families.values()
        for row in rows[1:]
        for column in plan.columns
    }
    pairs |= {
        f"{column} for {first}, {row}": ((row, column), (row, first))
        for row in plan.rows
        for column in plan.columns[1:]
    }
    differences = {
        name: [one[seed] - published[seed] for seed in one if seed in published]
        for name, (other, own) in pairs.items()
        if (one := values[other]) and (published := values[own])
    }
    tested = judged({name: found for name, found in differences.items() if found})
    rows_of_table, outcomes = [], list[Outcome]()
    for name, (other, own) in pairs.items():
        outcome, text = outcome_of(tested.get(name)), EMPTY
        if name in tested:
            text = tested[name].text()
        elif values[other] or values[own]:
            outcome, without = ("for", other) if values[own] else ("against", own)
            text = f"no value of {', '.join(without)} ({_fault(density, without)})"
        outcomes.append(outcome)
        rows_of_table.append((name, text, {"for": "worse", "against": "better", "open": "not told apart"}[outcome]))
    if not tested and set(outcomes) <= {"open"}:
        return nothing_to_judge(lines)
    caption = "One thing changed of the published setting: difference of the likelihood from it over paired seeds."
    table = Table(
        f"{plan.suite}-changes", caption, ("changed", "difference", "is"), tuple(rows_of_table), words=frozenset({2})
    )
    better, worse = outcomes.count("against"), outcomes.count("for")
    short = (
        f"of {len(outcomes)} single changes of the published settings {better} make it better, {worse} worse, "
        f"{outcomes.count('open')} are not told apart"
    )
    best = min((key for key, found in values.items() if found), key=lambda key: statistics.fmean(values[key].values()))
    text = f"Of {short[3:]}. The lowest mean is that of {best[0]}, {best[1]}."
    return Verdict(of_outcomes(outcomes), short, text, (table,))


def _fault(lines: Sequence[Line], cell: tuple[str, str]) -> str:
    mine = [line for line in lines if (line["layer"], line["dataset"]) == cell]
    return "/".join(sorted({failed_status(line) if not suspect(line) else "audit failed" for line in mine}))
