"""The lead of each layer over two 1x1 convolutions, the control that has as many linear maps in each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.kinds.density.likelihoods import by_seed, competes, density, of_column, oracles, ranking
from harness.kinds.density.trial import DensityTrial
from harness.reporting.frame import Results
from harness.reporting.statistics.statistics import Difference, estimate

if TYPE_CHECKING:
    from harness.planning.plan import Plan


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
