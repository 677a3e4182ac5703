"""Judges of claims about trained flows: what a likelihood is, which row has the lowest, what steps do to layers."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Mapping
from typing import TypeVar

import pandas as pd

from harness.core.records import AUDIT_FAILED
from harness.kinds.claims.verdicts import (
    SUBJECT,
    Comparison,
    Holds,
    Outcome,
    Verdict,
    compared,
    of_outcomes,
    outcome_of,
)
from harness.kinds.density.likelihoods import (
    UNITS,
    by_pair,
    comparable,
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

Cell = tuple[str, str]
Key = TypeVar("Key", bound=Hashable)


def accounting(results: Results) -> Verdict | None:
    """Judge whether the released accounting gives a likelihood: none lies below the resolution floor."""
    frame = density(results)
    ended = frame[frame["status"] == "ok"]
    claimed = ended.dropna(subset="claimed")
    if claimed.empty:
        return None
    claimed = claimed.assign(error=claimed["standard_error"].fillna(0)).sort_values("claimed", kind="stable")
    unit = UNITS[claimed["unit"].iloc[0]]
    fair = ended[ended["claimed"].isna() & ended["value"].notna() & ended["doubt"].isna()]
    means = {row: f"{statistics.fmean(lines['value']):.2f}" for row, lines in groups_of(fair, "layer")}
    rows = tuple(
        (
            line.layer,
            f"{line.claimed:.2f}",
            f"{line.value:.2f} ± {line.standard_error:.2f}" if pd.notna(line.standard_error) else f"{line.value:.2f}",
            EMPTY if pd.isna(line.floor) else f"{line.floor:.2f}",
            means.get(line.layer, EMPTY),
        )
        for line in rows_of(claimed)
    )
    header = ("layer", "claimed", "true, same weights", "floor", "trained on the true one")
    caption = f"Negative log-likelihood on the test split, {unit}, after training on the released accounting."
    table = Table(f"{results.plan.suite}-claimed", caption, header, rows, explained(rows, claimed))
    lowest = claimed.iloc[0]
    layer, gap = lowest["layer"], lowest["value"] - lowest["claimed"]
    short = f"{layer} claims {lowest['claimed']:.2f}, has {lowest['value']:.2f} {unit}"
    text = (
        f"Trained on the released accounting, {short} with the same weights: the part of the 1x1 convolutions' "
        "log-determinants that is not counted."
    )
    below = claimed[claimed["claimed"] < claimed["floor"] - GRANTED * claimed["error"]]
    if len(below):
        short += f"; the floor is {below['floor'].iloc[0]:.2f}"
        text += (
            f" {len(below)} of {len(claimed)} claimed values and {claimed['below_floor'].sum()} true ones lie below "
            "the resolution floor, which no density of dequantised values can pass."
        )
    elif gap > SMALL_GAP:
        short += ", so the claimed value is no likelihood of these weights"
    else:
        return Verdict("undecided", f"{short}: too close to tell", f"{text} Nothing lies below the floor.", (table,))
    return Verdict("does not hold", short, text, (table,))


def singularity(results: Results) -> Verdict | None:
    """Judge whether training kept every matrix on its side of the singular ones; the first column is the usual rate."""
    crossed: dict[str, list[bool]] = {}
    for line in rows_of(results.of_kind("density")):
        curves = {} if line.id not in results.records else results.records[line.id].curves
        counts = [value for value in curves.get("crossings", []) if value is not None]
        if line.status in ("ok", "diverged") and counts:
            crossed.setdefault(line.dataset, []).append(counts[-1] > 0)
    if not crossed:
        return None
    parts = [f"{sum(crossings)} of {len(crossings)} at {column}" for column, crossings in crossed.items()]
    short = f"trainings in which a step crosses a singular matrix: {', '.join(parts)}"
    ordinary = crossed.get(results.plan.columns[0], [])
    every = any(any(crossings) for crossings in crossed.values())
    holds: Holds = "holds" if not every else "holds in part" if ordinary and not any(ordinary) else "does not hold"
    return Verdict(holds, short, f"T{short[1:]}." + " That none did is no proof." * (not every))


def ranked(results: Results, subject: str = SUBJECT) -> Verdict | None:
    """Judge in which columns the butterfly is significantly the best, or behind another row, over paired seeds."""
    parts, shorts, outcomes, frame = [], [], list[Outcome](), density(results)
    if not frame["tuned"].any():
        return Verdict("undecided", "nothing was tuned", tuning_text(results))
    for column in results.plan.columns:
        rank = ranking(results, column)
        means = rank.means
        if subject not in means or len(means) < 2:
            tuned = frame.loc[frame["dataset"] == column, "tuned"].any()
            parts.append(f"{column}: {'nothing to compare' if tuned else 'nothing was tuned'}")
            outcomes.append("open")
            continue
        lowest, second, *_ = rank.order
        behind = {row: rank.behind(row) for row in rank.order[1:]}
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


def ranked_cdflow(results: Results) -> Verdict | None:
    """Judge as `ranked`, of CDFlow."""
    return ranked(results, "cdflow")


def settings(results: Results) -> Verdict | None:
    """Judge whether the published setting, each layer's first row in the first column, beats single changes of it."""
    plan, (cells, values) = results.plan, _likelihoods(results)
    layers = {layer.row: layer.layer for trial in plan.trials if trial.steps for layer in trial.layers_under_test}
    published = {layer: row for row, layer in reversed(layers.items())}
    first = plan.columns[0]
    pairs = {
        (row, f"{published[layer]}, {column}"): ((row, column), (published[layer], column))
        for row, layer in layers.items()
        if row != published[layer]
        for column in plan.columns
    }
    pairs |= {
        (column, f"{first}, {row}"): ((row, column), (row, first)) for row in plan.rows for column in plan.columns[1:]
    }
    tested = _differences(cells, values, pairs)
    comparisons: list[Comparison] = []
    for name, (changed, before) in pairs.items():
        outcome, text = outcome_of(tested.get(name)), EMPTY
        if name in tested:
            text = tested[name].evidence()
        elif values[changed] or values[before]:
            outcome, without = ("for", changed) if values[before] else ("against", before)
            failures = cells[without]["failure"].mask(cells[without]["doubt"].notna(), AUDIT_FAILED)
            text = f"no value of {', '.join(without)} ({'/'.join(sorted(failures.unique()))})"
        comparisons.append((outcome, (*name, text)))
    if not tested and all(outcome == "open" for outcome, _ in comparisons):
        return None
    caption = "One thing changed of the published setting: difference of the likelihood from it over paired seeds."
    return compared(results, caption, ("changed to", "from", "difference"), comparisons, words=2)


def same_likelihood(results: Results) -> Verdict | None:
    """Judge whether each library's layer, "X of LIBRARY", reaches the likelihood of X here, over paired seeds."""
    names, (cells, values) = units(results), _likelihoods(results)
    pairs = {(row, column): ((row, column), (row.partition(" of ")[0], column)) for row, column in values}
    pairs = {key: (cell, ours) for key, (cell, ours) in pairs.items() if cell != ours and values.get(ours)}
    comparisons: list[Comparison] = [
        (
            "for" if outcome_of(difference) == "open" else "against",
            (row, column, UNITS[names[column]], difference.evidence()),
        )
        for (row, column), difference in _differences(cells, values, pairs).items()
    ]
    without = [f"{row} on {column}" for row, column in pairs if not values[row, column]]
    caption = (
        "Negative log-likelihood of each library's layer less that of the same kind of layer here, by paired seeds: "
        "against the claim if they differ significantly."
    )
    caption += f" Without a likelihood: {', '.join(without)}." if without else ""
    return compared(results, caption, ("layer", "on", "unit", "its value less ours"), comparisons, words=3)


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
