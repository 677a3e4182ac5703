"""Paired differences below a density table: from the lowest mean, from a control, and on to the oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from harness.kinds.density.captions import HOLM, sample_words, sentences
from harness.kinds.density.likelihoods import (
    UNITS,
    Ranking,
    by_pair,
    competes,
    density,
    of_column,
    oracles,
    ranking,
    units,
)
from harness.kinds.density.trial import DensityTrial
from harness.kinds.density.tuning.searches import tuning_text
from harness.pipeline.models import backbone_of
from harness.reporting.frame import Results
from harness.reporting.statistics.statistics import ADJUSTED, LEAST_SEEDS, Difference, estimate, interval_kind
from harness.reporting.tables.cells import EMPTY, grid
from harness.reporting.tables.rendering import Table

if TYPE_CHECKING:
    from harness.planning.plan import Plan

BEST = "lowest mean"


def differences_table(results: Results, rankings: Mapping[str, Ranking]) -> Table | None:
    """Return a row per layer, a column per data set; None where no two ranked rows share two seeds or repetitions."""
    competitions = {
        label: competition
        for label, competition in rankings.items()
        if any(difference.estimate.low is not None for difference in competition.differences.values())
    }
    if not competitions:
        return None
    differences = [lead for competition in competitions.values() for lead in competition.differences.values()]
    kind, words = interval_kind(differences), sample_words(differences)
    rows = tuple(
        (row, *(_difference(competition, row) for competition in competitions.values())) for row in results.plan.rows
    )
    tested = any(lead.p is not None for lead in differences)
    holm = HOLM if ADJUSTED in kind else ""
    caption = sentences("differences", kind, words, tested, LEAST_SEEDS, holm, tuning_text(results))
    remark = f"{EMPTY}: an oracle, a row that was not tuned, or trials without a likelihood that may be compared"
    notes = (remark,) if any(EMPTY in row for row in rows) else ()
    return Table(f"{results.plan.suite}-differences", caption, ("layer", *competitions), rows, notes, detail=True)


def _difference(competition: Ranking, row: str) -> str:
    first = competition.firsts.get(row)
    led = f"; lowest in {first} of {len(competition.common)}" if first else ""
    difference = competition.behind(row)
    if difference is None:
        return BEST + led if row == competition.best else EMPTY
    return difference.text() + led


def leads_table(results: Results) -> Table | None:
    """Return a row per layer, a column per data set and another where there is an oracle; None without the control."""
    plan = results.plan
    control = control_of(plan)
    if control is None:
        return None
    by_column = {column: leads(results, column, control) for column in plan.columns}
    by_column = {column: cells for column, cells in by_column.items() if cells}
    if not by_column:
        return None
    header, columns = ["layer"], list[dict[str, str]]()
    ways = {column: shares(results, column, control) for column in by_column}
    for column, cells in by_column.items():
        header.append(f"{column}, {UNITS[units(results)[column]]} ↑")
        columns.append({row: difference.short() for row, difference in cells.items()})
        if ways[column]:
            header.append(f"{column}, % of the way to the oracle ↑")
            columns.append({row: _percent(share) for row, share in ways[column].items()})
    shown = [row for row in plan.rows if any(row in cells for cells in columns)]
    differences = [lead for cells in by_column.values() for lead in cells.values()]
    shared = [share for cells in ways.values() for share in cells.values()]
    caption = sentences(
        "leads",
        control=control,
        described=_controls(plan)[control],
        brackets=_brackets(differences),
        words=sample_words(differences),
        way=_brackets(shared) if shared else None,
        tuned=tuning_text(results),
    )
    return Table(f"{plan.suite}-leads", caption, tuple(header), grid(shown, columns), detail=True, on_card=True)


def control_of(plan: Plan) -> str | None:
    """Return the row over which leads are counted; None without such a row.

    It is the first row that is a control of its backbone.
    """
    controls = _controls(plan)
    return next((row for row in plan.rows if row in controls), None)


def _controls(plan: Plan) -> dict[str, str]:
    """Return the rows that are controls of their backbones, with the descriptions of these."""
    pairs = dict.fromkeys((trial.layer, trial.flow) for trial in plan.trials if isinstance(trial, DensityTrial))
    return {
        layer.row: control
        for layer, flow in pairs
        if (control := backbone_of(flow).control(layer.layer, dict(layer.options), layer.keep_mixer)) is not None
    }


def leads(results: Results, column: str, control: str) -> dict[str, Difference]:
    """Return control - layer over paired seeds or repetitions, by layer that competes; above 0 the layer is better."""
    competition = ranking(results, column)
    return {row: lead for row in competition.rows if (lead := competition.difference(control, row)) is not None}


def shares(results: Results, column: str, control: str) -> dict[str, Difference]:
    """Return (control - layer) / (control - oracle) over paired seeds or repetitions, by layer that competes.

    0: as far from the oracle as the control; 1: as good as the oracle. Empty without an oracle whose likelihoods may be
    compared and are better than the control's on each of them. An interval has the level of that of control - layer.
    """
    competition = ranking(results, column)
    rows, share = competition.rows, competition.share
    columns = of_column(density(results), results.plan, column)
    bounds = [
        by_pair(columns[row], "ranked") for row in oracles(results.plan) if row in columns and competes(columns[row])
    ]
    if control not in rows or not bounds:
        return {}
    reference, bound = rows[control], bounds[0]
    if any(bound.get(seed, value) >= value for seed, value in reference.items()):
        return {}
    ways = {}
    for row, values in rows.items():
        seeds = [seed for seed in reference if seed in values and seed in bound]
        shares_by_pair = tuple((reference[seed] - values[seed]) / (reference[seed] - bound[seed]) for seed in seeds)
        lead = competition.difference(control, row)
        if lead is not None and shares_by_pair:
            ways[row] = Difference(estimate(shares_by_pair, share=share), values=shares_by_pair, step=lead.step)
    return ways


def _brackets(differences: Sequence[Difference]) -> str:
    tests = ", p as in the differences" if any(difference.p is not None for difference in differences) else ""
    kind = interval_kind(differences)
    return f" [{kind} 95 % interval{tests}]" if kind else ""


def _percent(share: Difference) -> str:
    text = f"{100 * share.estimate.mean:.0f}"
    if share.interval is None:
        return text
    low, high = share.interval
    return f"{text} [{100 * low:.0f}, {100 * high:.0f}]"
