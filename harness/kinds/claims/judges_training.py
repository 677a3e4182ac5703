"""Judges of claims about trained flows: what a likelihood is, which row has the lowest, what steps do to layers."""

from __future__ import annotations

import statistics

import pandas as pd

from harness.core.records import AUDIT_FAILED, Record
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
from harness.kinds.density.curves import curve
from harness.kinds.density.likelihoods import (
    UNITS,
    by_seed,
    comparable,
    density,
    explained,
    of_column,
    ranking,
    units,
)
from harness.kinds.density.tuning.searches import tuning_text
from harness.reporting.frame import Results, groups_of, rows_of
from harness.reporting.statistics.statistics import Difference, judged
from harness.reporting.tables.cells import EMPTY
from harness.reporting.tables.rendering import Table

SMALL_GAP = 0.05  # nats or bits per dimension; what is claimed beyond the truth by less may be called the same
GRANTED = 3  # standard errors, below the floor
RECENT = 0.5  # the share of the evaluations over which a gap's growth is taken


def accounting(results: Results) -> Verdict:
    """Judge whether the released accounting gives a likelihood: none lies below the resolution floor."""
    frame = density(results)
    ended = frame[frame["status"] == "ok"]
    claimed = ended.dropna(subset="claimed")
    if claimed.empty:
        return nothing_to_judge(results)
    claimed = claimed.assign(error=claimed["standard_error"].fillna(0))
    unit = UNITS[claimed["unit"].iloc[0]]
    fair = ended[ended["claimed"].isna() & ended["value"].notna() & ended["doubt"].isna()]
    means = {row: statistics.fmean(own["value"]) for row, own in groups_of(fair, "layer")}
    rows = tuple(
        (
            line.layer,
            f"{line.claimed:.2f}",
            f"{line.value:.2f} ± {line.standard_error:.2f}" if pd.notna(line.standard_error) else f"{line.value:.2f}",
            EMPTY if pd.isna(line.floor) else f"{line.floor:.2f}",
            f"{means[line.layer]:.2f}" if line.layer in means else EMPTY,
        )
        for line in rows_of(claimed)
    )
    header = ("layer", "claimed", "true, same weights", "floor", "trained on the true one")
    caption = f"Negative log-likelihood on the test split, {unit}, after training on the released accounting."
    notes = explained(rows)
    table = Table(f"{results.plan.suite}-claimed", caption, header, rows, notes)
    lowest = claimed.sort_values("claimed", kind="stable").iloc[0]
    layer, claim, true = lowest["layer"], lowest["claimed"], lowest["value"]
    below = claimed[claimed["claimed"] < claimed["floor"] - GRANTED * claimed["error"]]
    text = (
        f"Trained on the released accounting, {layer} claims {claim:.2f} {unit}; the same weights have {true:.2f}. The "
        "difference is the part of the 1x1 convolutions' log-determinants that is not counted."
    )
    growth = _growth(results.records[lowest["id"]])
    if growth is not None:
        text += f" At the end of training it still grows by {growth:.2f} {unit} per 100 steps."
    if layer in means:
        text += f" Trained on the true log-determinant the layer has {means[layer]:.2f}."
    short = f"{layer} claims {claim:.2f}, has {true:.2f} {unit}"
    if len(below):
        floor, count = below["floor"].iloc[0], claimed["below_floor"].sum()
        text += (
            f" {len(below)} of {len(claimed)} claimed values lie below the resolution floor of {floor:.2f}, which no "
            f"density of dequantised values can pass; of the true values {f'{count} do' if count else 'none does'}."
        )
        return Verdict(FAILS, f"{short}; the floor is {floor:.2f}", text, (table,))
    if true - claim > SMALL_GAP:
        return Verdict(FAILS, f"{short}, so the claimed value is no likelihood of these weights", text, (table,))
    text += f" Nothing lies below the floor, and a difference of {true - claim:.2f} decides nothing."
    return Verdict(UNDECIDED, f"{short}: too close to tell", text, (table,))


def _growth(record: Record) -> float | None:
    """Return the growth of (true - claimed) at the end of training, per 100 steps."""
    claimed = dict(curve(record, "validation"))
    points = [(step, true - claimed[step]) for step, true in curve(record, "true_validation") if step in claimed]
    if len(points) < 2:
        return None
    (first, before), (last, now) = points[int(RECENT * (len(points) - 1))], points[-1]
    return 100 * (now - before) / (last - first)


def singularity(results: Results) -> Verdict:
    """Judge whether training kept every matrix on its side of the singular ones; the first column is the usual rate."""
    rows, crossed = [], dict[str, list[bool]]()
    for line in rows_of(results.of_kind("density")):
        curves = {} if line.id not in results.records else results.records[line.id].curves
        counts = [value for value in curves.get("crossings", []) if value is not None]
        smallest = [value for value in curves.get("smallest_singular_value", []) if value is not None]
        if line.status in ("ok", "diverged") and counts:
            crossed.setdefault(line.dataset, []).append(counts[-1] > 0)
            least = f"{min(smallest):.2g}" if smallest else EMPTY
            rows.append((line.layer, line.dataset, str(line.seed), str(int(counts[-1])), least, line.status))
    if not rows:
        return nothing_to_judge(results)
    header = ("layer", "data", "seed", "determinants that crossed zero", "smallest singular value", "status")
    caption = (
        "Signs of determinants after every step (of every 2x2 matrix of a butterfly, of a 1x1's matrix, of the whole "
        "matrix of another layer), and the smallest singular value of any watched layer at any evaluation."
    )
    table = Table(f"{results.plan.suite}-crossings", caption, header, tuple(rows), words=frozenset({1, 5}))
    parts = [f"{sum(found)} of {len(found)} at {column}" for column, found in crossed.items()]
    text = f"Trainings in which a step took a determinant across zero: {', '.join(parts)}."
    every = [crossing for found in crossed.values() for crossing in found]
    if not any(every):
        short = f"no step crossed a singular matrix in {len(every)} trainings"
        return Verdict(HOLDS, short, f"{text} None did in these trainings, which is no proof.", (table,))
    text += " The loss is infinite at a singular matrix, which a step of finite length passes over."
    short = f"steps cross singular matrices in {sum(every)} of {len(every)} trainings ({', '.join(parts)})"
    ordinary = crossed.get(results.plan.columns[0], [])
    return Verdict(IN_PART if ordinary and not any(ordinary) else FAILS, short, text, (table,))


def ranked(results: Results, subject: str = SUBJECT) -> Verdict:
    """Judge in which columns the subject is significantly the best, or behind another row, over paired seeds."""
    parts, shorts, outcomes, frame = [], [], list[Outcome](), density(results)
    if not frame["tuned"].any():
        return Verdict(UNDECIDED, "nothing was tuned", tuning_text(results))
    for column in results.plan.columns:
        found = ranking(results, column)
        means = found.means
        if subject not in means or len(means) < 2:
            tuned = frame.loc[frame["dataset"] == column, "tuned"].any()
            parts.append(f"{column}: {'nothing to compare' if tuned else 'nothing was tuned'}")
            outcomes.append("open")
            continue
        order = sorted(means, key=lambda row: means[row])
        text = f"{column}: {order[0]} is lowest ({means[order[0]]:.3f} {UNITS[units(results)[column]]})"
        if order[0] == subject:
            behind = {row: found.behind(row) for row in order[1:]}
            close = [row for row, difference in behind.items() if outcome_of(difference) != "for"]
            outcomes.append("open" if close else "for")
            nearest = (*close, order[1])[0]
            text += f", {_behind(nearest, behind[nearest])}"
            shorts.append(f"not clearly ahead of {', '.join(close)} on {column}" if close else f"first on {column}")
        else:
            difference = found.behind(subject)
            outcomes.append("against" if outcome_of(difference) == "for" else "open")
            text += f", {_behind(subject, difference)}"
            clearly = "" if outcomes[-1] == "against" else "not clearly "
            shorts.append(f"{clearly}behind {order[0]} on {column}")
        parts.append(text)
    if not shorts:
        return nothing_to_judge(results)
    return Verdict(of_outcomes(outcomes), f"{subject} is {', '.join(shorts)}", f"{'; '.join(parts)}.")


def ranked_cdflow(results: Results) -> Verdict:
    """Judge as `ranked`, of CDFlow."""
    return ranked(results, "cdflow")


def _behind(row: str, found: Difference | None) -> str:
    return f"{row} {EMPTY if found is None else found.evidence()}"


def settings(results: Results) -> Verdict:
    """Judge whether the published setting, each layer's first row in the first column, beats single changes of it.

    A setting without a likelihood is beaten by one that has one.
    """
    plan, frame = results.plan, density(results)
    cells = {(row, column): own for column in plan.columns for row, own in of_column(frame, plan, column).items()}
    values = {cell: by_seed(own) if comparable(own) else {} for cell, own in cells.items()}
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
        name: [changed[seed] - published[seed] for seed in changed if seed in published]
        for name, (other, own) in pairs.items()
        if (changed := values[other]) and (published := values[own])
    }
    tested = judged({name: found for name, found in differences.items() if found})
    rows_of_table, outcomes = [], list[Outcome]()
    for name, (other, own) in pairs.items():
        outcome, text = outcome_of(tested.get(name)), EMPTY
        if name in tested:
            text = tested[name].evidence()
        elif values[other] or values[own]:
            outcome, without = ("for", other) if values[own] else ("against", own)
            failures = cells[without]["failure"].mask(cells[without]["doubt"].notna(), AUDIT_FAILED)
            text = f"no value of {', '.join(without)} ({'/'.join(sorted(failures.unique()))})"
        outcomes.append(outcome)
        rows_of_table.append(
            (name, text, {"for": "worse", "against": "better", "open": "not clearly different"}[outcome])
        )
    if not tested and set(outcomes) <= {"open"}:
        return nothing_to_judge(results)
    caption = "One thing changed of the published setting: difference of the likelihood from it over paired seeds."
    table = Table(
        f"{plan.suite}-changes", caption, ("changed", "difference", "is"), tuple(rows_of_table), words=frozenset({2})
    )
    better, worse = outcomes.count("against"), outcomes.count("for")
    short = (
        f"of {len(outcomes)} single changes of the published settings {better} make it better, {worse} worse, "
        f"{outcomes.count('open')} make no clear difference"
    )
    return Verdict(of_outcomes(outcomes), short, f"Of {short[3:]}.", (table,))
