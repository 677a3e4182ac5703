"""Likelihood against what it costs: parameters, and seconds of training."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter

from harness.kinds.density.captions import bars_texts
from harness.kinds.density.likelihoods import UNITS, fallback_note
from harness.kinds.density.models import Field, Model, fields
from harness.kinds.density.tuning.searches import tuning_text
from harness.reporting.figures.figure_style import (
    Look,
    arrow,
    footnotes,
    inner_range,
    looks,
    panels,
    plain,
    row_handles,
    side_legend,
)
from harness.reporting.frame import Results

HEADING = "Likelihood against cost"
ORDER = 2

COSTS: dict[str, Callable[[Model], float | None]] = {
    "parameters": lambda model: model.parameters,
    "seconds of training": lambda model: model.seconds,
}

DOMINATED = 0.35  # the opacity of a point that another one dominates
FAINT = "#6f6f6f"  # of the name of a point beyond the panel
DECADE = 10
TITLE_CHARACTERS = 32  # of a line of a panel's title


def figures(results: Results) -> dict[str, Figure]:
    """Return a figure of two panels per data set: widths of a row are joined, and dominated points are grey."""
    plan = results.plan
    shown = [(field, cost) for field in fields(results) for cost in COSTS if _drawable(field, cost)]
    if not shown:
        return {}
    figure, grid = panels(len(shown), 4.0, 3.4, columns=2)
    for axes, (field, cost) in zip(grid, shown, strict=True):
        _panel(axes, looks(plan), field, cost)
    models = [model for field, _ in shown for model in field.models]
    notes = bars_texts(model.estimate for model in models)
    if any(model.competes for model in models):
        notes.append("dashed: Pareto front of the means; pale: not on it")
    if any(model.hollow for model in models):
        notes.append("hollow: not a likelihood to compare, told the permutation, or not tuned")
    footnotes(figure, [*notes, *fallback_note(results), tuning_text(results)])
    rows = {model.row for model in models}
    drawn = {row: look for row, look in looks(plan).items() if row in rows}
    side_legend(figure, row_handles(drawn, linestyle="", markersize=5))
    return {"pareto": figure}


def front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points (cost, value) that no other one dominates, by rising cost."""
    best: list[tuple[float, float]] = []
    for cost, value in sorted(points):
        if not best or value < best[-1][1]:
            best.append((cost, value))
    return best


def _drawable(field: Field, cost: str) -> bool:
    """Return whether two rows or more have costs that may be compared; times only of one kind of machine."""
    models = [model for model in field.models if COSTS[cost](model) is not None]
    one_machine = len({model.machine for model in models}) == 1
    return len({model.row for model in models}) > 1 and (one_machine or cost == "parameters")


def _panel(axes: Axes, chosen: Mapping[str, Look], field: Field, cost: str) -> None:
    """Draw the models of a data set; of those far beyond the others an arrow with the name."""
    points = [(x, model) for model in field.models if (x := COSTS[cost](model)) is not None]
    best = front([(x, model.mean) for x, model in points if model.competes])
    low, high = inner_range([model.mean for _, model in points])
    for row, look in chosen.items():
        of_row = sorted(((x, model) for x, model in points if model.row == row), key=lambda point: point[0])
        inside = [(x, model) for x, model in of_row if low <= model.mean <= high]
        if len(inside) > 1:
            axes.plot(
                [x for x, _ in inside],
                [model.mean for _, model in inside],
                color=look.colour,
                alpha=DOMINATED,
                linewidth=0.8,
            )
        for x, model in of_row:
            if not low <= model.mean <= high:
                arrow(axes, x, f"{plain(row)} {model.mean:.3g}", FAINT, "y", upward=model.mean > high)
                axes.update_datalim([(x, high)])
                continue
            below, above = model.estimate.bars
            axes.errorbar(
                x,
                model.mean,
                yerr=[[below], [above]],
                color=look.colour,
                alpha=DOMINATED if best and (x, model.mean) not in best else 1,
                marker=look.marker,
                markerfacecolor="white" if model.hollow else look.colour,
                markersize=6,
                capsize=2,
            )
    if best:
        corners = [best[0], *(corner for (_, y), (x, z) in itertools.pairwise(best) for corner in ((x, y), (x, z)))]
        axes.plot(*zip(*corners, strict=True), color="#777777", linewidth=1, linestyle="--")
    axes.margins(x=0.12, y=0.1)
    axes.set_title(textwrap.fill(plain(field.name), TITLE_CHARACTERS))
    axes.set_xlabel(cost)
    axes.set_ylabel(f"{UNITS[field.unit]} (lower is better)")
    costs = [x for x, _ in points]
    if max(costs) >= DECADE * min(costs) > 0:  # a log scale of less has no round numbers to show
        axes.set_xscale("log")
        decades = math.log10(max(costs) / min(costs))
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2 else (1,)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 20k for 20,000
