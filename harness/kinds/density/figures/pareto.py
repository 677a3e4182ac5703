"""Likelihood against what it costs: parameters, and seconds of training."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from harness.kinds.density.likelihoods import UNITS, bars_texts
from harness.kinds.density.models import Field, Model, fields
from harness.kinds.density.tuning.searches import tuning_text
from harness.reporting.figures.figure_style import colour, footnotes, marker, panels, plain, side_legend
from harness.reporting.frame import Results

if TYPE_CHECKING:
    from harness.planning.plan import Plan

HEADING = "Likelihood against cost"
ORDER = 2

COSTS: dict[str, Callable[[Model], float | None]] = {
    "parameters": lambda model: model.parameters,
    "seconds of training": lambda model: model.seconds,
}

DECADE = 10
TITLE_CHARACTERS = 32  # of a line of a panel's title


def figures(results: Results) -> dict[str, Figure]:
    """Return a figure of two panels per data set: widths of a row are joined, the front is grey.

    Models that are not to be compared are hollow, and only tuned ones make a front.
    """
    plan = results.plan
    shown = [(field, cost) for field in fields(results) for cost in COSTS if _drawable(field, cost)]
    if not shown:
        return {}
    figure, grid = panels(len(shown), 3.2, 3.0, columns=2)
    for axes, (field, cost) in zip(grid, shown, strict=True):
        _panel(axes, plan, field, cost)
    handles = [
        Line2D([], [], color=colour(i), marker=marker(i), linestyle="", label=plain(row))
        for i, row in enumerate(plan.rows)
    ]
    models = [model for field, _ in shown for model in field.models]
    if any(model.competes for model in models):
        handles.append(Line2D([], [], color="#777777", linewidth=1, linestyle="--", label="Pareto front"))
    side_legend(figure, handles)
    notes = bars_texts(model.estimate for model in models)
    if any(model.doubtful or model.exempt for model in models):
        notes.append("hollow: not a likelihood to compare, told the permutation, or not tuned")
    footnotes(figure, [*notes, tuning_text(results)])
    return {"pareto": figure}


def front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points (cost, value) that no other one dominates, by rising cost."""
    found: list[tuple[float, float]] = []
    for cost, value in sorted(points):
        if not found or value < found[-1][1]:
            found.append((cost, value))
    return found


def _drawable(field: Field, cost: str) -> bool:
    """Return whether two rows or more have costs that may be compared; times only of one kind of machine."""
    known = [model for model in field.models if COSTS[cost](model) is not None]
    one_machine = len({model.machine for model in known}) == 1
    return len({model.row for model in known}) > 1 and (one_machine or cost == "parameters")


def _panel(axes: Axes, plan: Plan, field: Field, cost: str) -> None:
    known = [(found, model) for model in field.models if (found := COSTS[cost](model)) is not None]
    for position, row in enumerate(plan.rows):
        own = sorted(((x, model) for x, model in known if model.row == row), key=lambda point: point[0])
        if len(own) > 1:
            axes.plot([x for x, _ in own], [model.mean for _, model in own], color=colour(position), linewidth=0.8)
        for x, model in own:
            low, high = model.estimate.bars
            face = "white" if model.doubtful or model.exempt else colour(position)
            axes.errorbar(
                x,
                model.mean,
                yerr=[[low], [high]],
                color=colour(position),
                marker=marker(position),
                markerfacecolor=face,
                markersize=6,
                capsize=2,
            )
    best = front([(x, model.mean) for x, model in known if model.competes])
    if best:
        axes.step(*zip(*best, strict=True), where="post", color="#777777", linewidth=1, linestyle="--")
    axes.set_title(textwrap.fill(plain(field.name), TITLE_CHARACTERS))
    axes.set_xlabel(cost)
    axes.set_ylabel(f"{UNITS[field.unit]} (lower is better)")
    costs = [x for x, _ in known]
    if max(costs) >= DECADE * min(costs) > 0:  # a log scale of less has no round numbers to show
        axes.set_xscale("log")
        decades = math.log10(max(costs) / min(costs))
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 1.5 else (1, 3) if decades < 2 else (1,)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
