"""The lead of each layer over two 1x1 convolutions per step, and its share of the way from there to the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.kinds.density.likelihoods import (
    UNITS,
    by_seed,
    competes,
    density,
    interval_kind,
    of_column,
    oracles,
    ranking,
    units,
)
from harness.kinds.density.trial import DensityTrial
from harness.kinds.density.tuning.searches import tuning_text
from harness.reporting.frame import Results
from harness.reporting.statistics.statistics import Difference, estimate
from harness.reporting.tables.cells import grid
from harness.reporting.tables.rendering import Table

if TYPE_CHECKING:
    from harness.planning.plan import Plan


def leads_table(results: Results) -> Table | None:
    """Return a row per layer, a column per data set and another where there is an oracle; None without the control."""
    plan = results.plan
    control = control_of(plan)
    if control is None:
        return None
    found = {column: leads(results, column, control) for column in plan.columns}
    found = {column: own for column, own in found.items() if own}
    if not found:
        return None
    header, columns = ["layer"], list[dict[str, str]]()
    parts = {column: shares(results, column, control) for column in found}
    for column, own in found.items():
        header.append(f"{column}, {UNITS[units(results)[column]]} ↑")
        columns.append({row: difference.short() for row, difference in own.items()})
        if parts[column]:
            header.append(f"{column}, % of the way to the oracle ↑")
            columns.append({row: _percent(share) for row, share in parts[column].items()})
    shown = [row for row in plan.rows if any(row in own for own in columns)]
    caption = (
        f"Lead over {control}, the control with two 1x1 convolutions in each step: its negative log-likelihood minus "
        f"that of the layer, mean{_brackets(found)} over paired seeds; above zero the layer is better."
    )
    if any(parts.values()):
        caption += (
            f" The way to the oracle: the lead divided by that of the oracle, seed by seed, mean{_brackets(parts)}; "
            "100 is as good as knowing the permutation."
        )
    caption += f" {tuning_text(results)}"
    return Table(f"{plan.suite}-leads", caption, tuple(header), grid(shown, columns), detail=True)


def control_of(plan: Plan) -> str | None:
    """Return the first row with two 1x1 convolutions in each step, in plan order; None without such a row."""
    trials = [trial for trial in plan.trials if isinstance(trial, DensityTrial)]
    rows = {trial.layer.row for trial in trials if trial.layer.layer == "conv1x1" and trial.layer.keep_mixer}
    return next((row for row in plan.rows if row in rows), None)


def leads(results: Results, column: str, control: str) -> dict[str, Difference]:
    """Return control - layer over paired seeds, by layer that competes; above zero the layer is better."""
    found = ranking(results, column)
    return {row: lead for row in found.rows if (lead := found.difference(control, row)) is not None}


def shares(results: Results, column: str, control: str) -> dict[str, Difference]:
    """Return (control - layer) / (control - oracle) over paired seeds, by layer that competes.

    0: as far from the oracle as the control; 1: as good as the oracle. Empty without an oracle whose likelihoods may be
    compared and are better than the control's on each seed.
    """
    rows = ranking(results, column).rows
    columns = of_column(density(results), results.plan, column)
    bounds = [by_seed(columns[row]) for row in oracles(results.plan) if row in columns and competes(columns[row])]
    if control not in rows or not bounds:
        return {}
    reference, bound = rows[control], bounds[0]
    if any(bound.get(seed, value) >= value for seed, value in reference.items()):
        return {}
    found = {}
    for row, values in rows.items():
        seeds = [seed for seed in reference if seed in values and seed in bound]
        own = tuple((reference[seed] - values[seed]) / (reference[seed] - bound[seed]) for seed in seeds)
        if row != control and own:
            found[row] = Difference(estimate(own), values=own)
    return found


def _brackets(found: Mapping[str, Mapping[str, Difference]]) -> str:
    differences = [difference for own in found.values() for difference in own.values()]
    tests = ", p as in the differences" if any(difference.p is not None for difference in differences) else ""
    kind = interval_kind(differences)
    return f" [{kind} 95 % interval{tests}]" if kind else ""


def _percent(share: Difference) -> str:
    text = f"{100 * share.estimate.mean:.0f}"
    if share.interval is None:
        return text
    low, high = share.interval
    return f"{text} [{100 * low:.0f}, {100 * high:.0f}]"
