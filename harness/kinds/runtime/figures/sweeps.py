"""Runtime curves: time against what a sweep varies, a panel per operation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from harness.core.files import distinct_slugs
from harness.kinds.runtime.points import merged
from harness.kinds.runtime.trial import RuntimeTrial
from harness.reporting.figures.figure_style import Look, footnotes, logarithmic, looks, panels, plain, side_legend
from harness.reporting.frame import Results
from harness.reporting.tables.cells import OPERATIONS, shape_text

if TYPE_CHECKING:
    from harness.planning.plan import Plan

HEADING = "Runtime curves"
ORDER = 0

PANEL = 2.8  # inches, the width of one: four and their legend fit a page of 1280 pixels
TICKS = 7  # at most, on a horizontal axis


def figures(results: Results) -> dict[str, Figure]:
    """Return a figure of every sweep, a panel per operation."""
    plan, frame = results.plan, results.frame
    names = distinct_slugs(plan.columns)
    made = {}
    for sweep in results.of_kind("runtime")["sweep"].unique():
        threads = next(t.threads for t in plan.trials if isinstance(t, RuntimeTrial) and t.sweep == sweep)
        points = merged(frame[frame["sweep"] == sweep], threads).dropna(subset="median_ms")
        if len(points):
            made[f"runtime-{names[sweep]}"] = _figure(plan, sweep, points)
    return made


def _figure(plan: Plan, sweep: str, points: pd.DataFrame) -> Figure:
    """Return median milliseconds on a log scale, one curve per layer."""
    operations = [name for name in OPERATIONS if (points["operation"] == name).any()]
    places, label, rest = varying(points)
    points = points.assign(place=places).sort_values("place", kind="stable")
    figure, grid = panels(len(operations), PANEL, 3.4, share_y=True)
    ticks, shown = list(points["place"].unique()), looks(plan)
    for axes, operation in zip(grid, operations, strict=True):
        timed = points[points["operation"] == operation]
        for row, look in shown.items():
            curve = timed[timed["layer"] == row]
            if len(curve):
                _curve(axes, curve, look, row)
        axes.set_title(OPERATIONS[operation])
        axes.set_xlabel(label)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(FixedLocator(ticks, nbins=TICKS))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        logarithmic(axes.yaxis)
    grid[0].set_ylabel("ms, median, and its spread")
    side_legend(figure, grid[0].get_legend_handles_labels()[0])
    figure.suptitle(plain(f"{sweep}: {rest}"), x=0.01, ha="left", fontsize=10)
    if points["unstable"].any():
        footnotes(figure, ["hollow: unstable, † in the tables"])
    return figure


def _curve(axes: Axes, points: pd.DataFrame, look: Look, row: str) -> None:
    """Draw medians, hollow where unstable, with a band: the interquartile range, or the gap between processes."""
    line: dict[str, Any] = {"color": look.colour, "marker": look.marker, "markersize": 4.5}
    places, middle = list(points["place"]), list(points["median_ms"])
    axes.plot(places, middle, label=plain(row), **line)
    shaky = points[points["unstable"]]
    if len(shaky):
        axes.plot(list(shaky["place"]), list(shaky["median_ms"]), linestyle="", markerfacecolor="white", **line)
    low = list(points["low"].clip(lower=points["median_ms"] / 10))
    axes.fill_between(places, low, list(points["high"]), color=look.colour, alpha=0.18, linewidth=0)


def varying(points: pd.DataFrame) -> tuple[list[int], str, str]:
    """Return what varies along a sweep: (its value at each point, the axis label, what stays the same)."""
    shapes = [tuple(map(int, shape.split("x"))) for shape in points["shape"]]
    if points["batch"].nunique() > 1:
        return list(points["batch"]), "batch size", shape_text(points["shape"].min())
    ordered = sorted(set(shapes), key=lambda shape: (math.prod(shape), shape))
    events = ", ".join("×".join(map(str, shape)) for shape in ordered)
    rest = f"events {events}; batch {points['batch'].min()}"
    return [math.prod(shape) for shape in shapes], "D, entries of an event", rest
