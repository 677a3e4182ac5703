"""Judges of claims about trained flows: what a likelihood is, which row has the lowest, what steps do to layers."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Mapping
from typing import TypeVar

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
    of_outcomes,
    outcome_of,
)
from harness.kinds.density.likelihoods import (
    UNITS,
    by_pair,
    comparable,
    curve,
    density,
    explained,
    of_column,
    ranking,
    share_of,
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

Cell = tuple[str, str]
Key = TypeVar("Key", bound=Hashable)


def accounting(results: Results) -> Verdict | None:
    """Judge whether the released accounting gives a likelihood: none lies below the resolution floor."""
    frame = density(results)
    ended = frame[frame["status"] == "ok"]
    claimed = ended.dropna(subset="claimed")
    if claimed.empty:
        return None
    claimed = claimed.assign(error=claimed["standard_error"].fillna(0))
    unit = UNITS[claimed["unit"].iloc[0]]
    fair = ended[ended["claimed"].isna() & ended["value"].notna() & ended["doubt"].isna()]
    means = {row: statistics.fmean(lines["value"]) for row, lines in groups_of(fair, "layer")}
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


def singularity(results: Results) -> Verdict | None:
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
        return None
    header = ("layer", "data", "seed", "determinants that crossed zero", "smallest singular value", "status")
    caption = (
        "Signs of determinants after every step (of every 2x2 matrix of a butterfly, of a 1x1's matrix, of the whole "
        "matrix of another layer), and the smallest singular value of any watched layer at any evaluation."
    )
    table = Table(f"{results.plan.suite}-crossings", caption, header, tuple(rows), words=frozenset({1, 5}))
    parts = [f"{sum(crossings)} of {len(crossings)} at {column}" for column, crossings in crossed.items()]
    text = f"Trainings in which a step took a determinant across zero: {', '.join(parts)}."
    every = [crossing for crossings in crossed.values() for crossing in crossings]
    if not any(every):
        short = f"no step crossed a singular matrix in {len(every)} trainings"
        return Verdict(HOLDS, short, f"{text} None did in these trainings, which is no proof.", (table,))
    text += " The loss is infinite at a singular matrix, which a step of finite length passes over."
    short = f"steps cross singular matrices in {sum(every)} of {len(every)} trainings ({', '.join(parts)})"
    ordinary = crossed.get(results.plan.columns[0], [])
    return Verdict(IN_PART if ordinary and not any(ordinary) else FAILS, short, text, (table,))


def ranked(results: Results) -> Verdict | None:
    """Judge in which columns the butterfly is significantly the best, or behind another row, over paired seeds."""
    return _ranked(results, SUBJECT)


def ranked_cdflow(results: Results) -> Verdict | None:
    """Judge as `ranked`, of CDFlow."""
    return _ranked(results, "cdflow")


def _ranked(results: Results, subject: str) -> Verdict | None:
    parts, shorts, outcomes, frame = [], [], list[Outcome](), density(results)
    if not frame["tuned"].any():
        return Verdict(UNDECIDED, "nothing was tuned", tuning_text(results))
    for column in results.plan.columns:
        rank = ranking(results, column)
        means = rank.means
        if subject not in means or len(means) < 2:
            tuned = frame.loc[frame["dataset"] == column, "tuned"].any()
            parts.append(f"{column}: {'nothing to compare' if tuned else 'nothing was tuned'}")
            outcomes.append("open")
            continue
        lowest, second, *_ = order = sorted(means, key=lambda row: means[row])
        behind = {row: rank.behind(row) for row in order[1:]}
        if lowest == subject:
            close = [row for row, difference in behind.items() if outcome_of(difference) != "for"]
            other = (*close, second)[0]
            outcomes.append("open" if close else "for")
            shorts.append(f"not clearly ahead of {', '.join(close)} on {column}" if close else f"first on {column}")
        else:
            other, clear = subject, outcome_of(behind[subject]) == "for"
            outcomes.append("against" if clear else "open")
            shorts.append(f"{'' if clear else 'not clearly '}behind {lowest} on {column}")
        difference = behind[other]
        evidence = EMPTY if difference is None else difference.evidence()
        unit = UNITS[units(results)[column]]
        parts.append(f"{column}: {lowest} is lowest ({means[lowest]:.3f} {unit}), {other} {evidence}")
    if not shorts:
        return None
    return Verdict(of_outcomes(outcomes), f"{subject} is {', '.join(shorts)}", f"{'; '.join(parts)}.")


def settings(results: Results) -> Verdict | None:
    """Judge whether the published setting, each layer's first row in the first column, beats single changes of it."""
    plan, (cells, values) = results.plan, _likelihoods(results)
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
    tested = _differences(cells, values, pairs)
    rows_of_table, outcomes = [], list[Outcome]()
    for name, (changed, published) in pairs.items():
        outcome, text = outcome_of(tested.get(name)), EMPTY
        if name in tested:
            text = tested[name].evidence()
        elif values[changed] or values[published]:
            outcome, without = ("for", changed) if values[published] else ("against", published)
            failures = cells[without]["failure"].mask(cells[without]["doubt"].notna(), AUDIT_FAILED)
            text = f"no value of {', '.join(without)} ({'/'.join(sorted(failures.unique()))})"
        outcomes.append(outcome)
        rows_of_table.append(
            (name, text, {"for": "worse", "against": "better", "open": "not clearly different"}[outcome])
        )
    if not tested and set(outcomes) <= {"open"}:
        return None
    caption = "One thing changed of the published setting: difference of the likelihood from it over paired seeds."
    header = ("changed", "difference", "is")
    table = Table(f"{plan.suite}-changes", caption, header, tuple(rows_of_table), words=frozenset({2}))
    short = (
        f"of {len(outcomes)} single changes of the published settings {outcomes.count('against')} make it better, "
        f"{outcomes.count('for')} worse, {outcomes.count('open')} make no clear difference"
    )
    return Verdict(of_outcomes(outcomes), short, f"Of {short[3:]}.", (table,))


def same_likelihood(results: Results) -> Verdict | None:
    """Judge whether each library's layer, "X of LIBRARY", reaches the likelihood of X here, over paired seeds."""
    names, (cells, values) = units(results), _likelihoods(results)
    pairs = {(row, column): ((row, column), (row.partition(" of ")[0], column)) for row, column in values}
    pairs = {key: (cell, ours) for key, (cell, ours) in pairs.items() if cell != ours and values.get(ours)}
    tested = _differences(cells, values, pairs)
    if not tested:
        return None
    rows = tuple(
        (row, column, UNITS[names[column]], difference.evidence()) for (row, column), difference in tested.items()
    )
    header = ("layer", "on", "unit", "its value less ours")
    caption = (
        "Negative log-likelihood of each library's layer less that of the same kind of layer here, by paired seeds."
    )
    table = Table(f"{results.plan.suite}-differences", caption, header, rows, words=frozenset({1, 2, 3}))
    same = [outcome_of(difference) == "open" for difference in tested.values()]
    count = same.count(False)
    text = f"Of {len(tested)} comparisons {count} show a significant difference."
    without = [f"{row} on {column}" for row, column in pairs if not values[row, column]]
    if without:
        text += f" Without a likelihood: {', '.join(without)}."
    short = f"{count} of {len(tested)} differ significantly"
    return Verdict(of_outcomes("for" if equal else "against" for equal in same), short, text, (table,))


def _likelihoods(results: Results) -> tuple[dict[Cell, pd.DataFrame], dict[Cell, dict[int, float]]]:
    """Return the frame by (row, column), and the likelihoods by seed, none of a cell where they may not be compared."""
    plan, frame = results.plan, density(results)
    cells = {(row, column): lines for column in plan.columns for row, lines in of_column(frame, plan, column).items()}
    return cells, {cell: by_pair(lines) if comparable(lines) else {} for cell, lines in cells.items()}


def _differences(
    cells: Mapping[Cell, pd.DataFrame],
    values: Mapping[Cell, Mapping[int, float]],
    pairs: Mapping[Key, tuple[Cell, Cell]],
) -> dict[Key, Difference]:
    """Return the difference of the first from the second of each pair over the seeds or repetitions that they share."""
    differences = {
        key: [value - values[reference][seed] for seed, value in values[cell].items() if seed in values[reference]]
        for key, (cell, reference) in pairs.items()
    }
    shares = {key: share_of(cells[cell]) for key, (cell, _) in pairs.items()}
    return judged({key: sample for key, sample in differences.items() if sample}, shares)


JUDGES = (accounting, singularity, ranked, ranked_cdflow, settings, same_likelihood)
