"""The figures of a report: which there are, for which kind of suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from harness.core.records import Record
from harness.kinds.density.figure_likelihood import cost_figure, likelihood_figure
from harness.kinds.density.figure_neighbours import neighbour_figures
from harness.kinds.density.figure_pareto import pareto_figure
from harness.kinds.density.figure_samples import sample_figures
from harness.kinds.density.figure_training import training_figure
from harness.kinds.examination.figures import accounting_figure, singular_figure
from harness.kinds.runtime.figures import sweep_figures
from harness.reporting.figures.figure_style import render, slug, style
from harness.reporting.results import plan_lines

if TYPE_CHECKING:
    from harness.planning.plan import Plan

OF_CLAIMS = ("accounting", "singular", "likelihood", "training", "runtime")
"""Figures that a section of a report on claims has."""


def rendered(made: Mapping[str, Figure]) -> dict[str, bytes]:
    """Every figure as PNG and, but for pictures, SVG, by file name."""
    files: dict[str, bytes] = {}
    with style():
        for name, figure in made.items():
            files |= render(name, figure)
    return files


def drawn(plan: Plan, records: Sequence[Record], folder: Path) -> dict[str, Figure]:
    """Every figure of a plan by name; those without content are left out.

    Args:
        plan: the order of layers and data sets.
        records: what was measured.
        folder: where the records lie, with their arrays of samples.
    """
    if plan.sections:
        parts: dict[str, Figure] = {}
        for section in plan.sections:
            part = plan.part(section)
            ids = {trial.id for trial in part.trials}
            own = drawn(part, [record for record in records if record.id in ids], folder)
            parts |= {f"{section.name}-{name}": figure for name, figure in own.items() if name.startswith(OF_CLAIMS)}
        return parts
    lines = plan_lines(records, plan)
    made: dict[str, Figure | None] = {}
    with style():
        if plan.kind == "density":
            made["likelihood"] = likelihood_figure(plan, lines)
            made["pareto"] = pareto_figure(plan, lines)
            made["cost"] = cost_figure(plan, lines)
            made["accounting"] = accounting_figure(plan, records)
            if made["accounting"] is None:  # else some of the curves are of what is no likelihood
                made["training"] = training_figure(plan, records)
            made["singular"] = singular_figure(plan, records)
            made |= sample_figures(plan, records, folder)
            made |= neighbour_figures(plan, records, folder)
        elif plan.kind == "runtime":
            for sweep in dict.fromkeys(line["sweep"] for line in lines):
                mine = [line for line in lines if line["sweep"] == sweep]
                for suffix, curve in sweep_figures(plan, sweep, mine).items():
                    made[f"runtime-{slug(sweep)}{suffix}"] = curve
    return {name: figure for name, figure in made.items() if figure is not None}
