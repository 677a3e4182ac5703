"""Runtime curves: time against what a sweep varies, a panel per operation."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
CLOSE = 0.1  # of the length of the axis, between two ticks

MIXER = "conv1x1"
"""The layer beside every other one, whose parameterisations have a separate figure."""


def figures(results: Results) -> dict[str, Figure]:
    """Return figures of every sweep, a panel per operation; 1x1 convolutions have a separate one."""
    plan, frame = results.plan, results.frame
    names = distinct_slugs(plan.columns, reserved=f"-{MIXER}")
    made = {}
    for sweep in results.of_kind("runtime")["sweep"].unique():
        trials = [trial for trial in plan.trials if isinstance(trial, RuntimeTrial) and trial.sweep == sweep]
        points = merged(frame[frame["sweep"] == sweep], trials[0].threads).dropna(subset="median_ms")
        mixers = {ref.row for trial in trials for ref in trial.layers if ref.layer == MIXER}
        for suffix, which, rows in (
            ("", "", set(plan.rows) - mixers),
            (f"-{MIXER}", ", 1×1 convolutions", mixers),
        ):
            selected = points[points["layer"].isin(rows)]
            if len(selected):
                made[f"runtime-{names[sweep]}{suffix}"] = _figure(plan, sweep, selected, which)
    return made


def _figure(plan: Plan, sweep: str, points: pd.DataFrame, which: str) -> Figure:
    """Return median milliseconds on a log scale, one curve per layer, and that of copying the tensor."""
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
        copies = timed.dropna(subset="copy_ms").drop_duplicates("place", keep="last")
        if len(copies):
            axes.plot(list(copies["place"]), list(copies["copy_ms"]), color="#777777", linestyle="--", label="copy")
        axes.set_title(OPERATIONS[operation])
        axes.set_xlabel(label)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(FixedLocator(apart(ticks)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        logarithmic(axes.yaxis)
    grid[0].set_ylabel("ms, median, and its spread")
    side_legend(figure, grid[0].get_legend_handles_labels()[0])
    figure.suptitle(plain(f"{sweep}: {rest}{which}"), x=0.01, ha="left", fontsize=10)
    if points["unstable"].any():
        footnotes(figure, ["hollow: unstable, † in the tables"])
    return figure


def _curve(axes: Axes, points: pd.DataFrame, look: Look, row: str) -> None:
    """Draw medians, hollow where unstable, with a band: the interquartile range, or the gap between processes."""
    line: dict[str, Any] = {"color": look.colour, "marker": look.marker, "markersize": 4.5}
    places, middle = list(points["place"]), list(points["median_ms"])
    axes.plot(places, middle, label=plain(row), **line)
    shaky = points[points["unstable"].astype(bool)]
    if len(shaky):
        axes.plot(list(shaky["place"]), list(shaky["median_ms"]), linestyle="", markerfacecolor="white", **line)
    low = list(points["low"].clip(lower=points["median_ms"] / 10))
    axes.fill_between(places, low, list(points["high"]), color=look.colour, alpha=0.18, linewidth=0)


def apart(ticks: Sequence[int]) -> list[int]:
    """Return the places, in ascending order, without those too near to one before them on a log axis."""
    least = CLOSE * math.log(ticks[-1] / ticks[0])
    kept = list(ticks[:1])
    for tick in ticks[1:]:
        if math.log(tick / kept[-1]) >= least:
            kept.append(tick)
    return kept


def varying(points: pd.DataFrame) -> tuple[list[int], str, str]:
    """Return what varies along a sweep: (its value at each point, the axis label, what stays the same)."""
    shapes = [tuple(map(int, shape.split("x"))) for shape in points["shape"]]
    smallest, batch = points["shape"].min(), points["batch"].min()
    if points["batch"].nunique() > 1:
        return list(points["batch"]), "batch size", shape_text(smallest)
    channels, spatial = {shape[0] for shape in shapes}, {shape[1:] for shape in shapes}
    oblong = any(len(set(side)) > 1 for side in spatial)
    if oblong or (len(channels) > 1 and len(spatial) > 1):
        ordered = sorted(set(shapes), key=lambda shape: (math.prod(shape), shape))
        listed = ", ".join("×".join(map(str, shape)) for shape in ordered)
        return [math.prod(shape) for shape in shapes], "D, entries of an event", f"events {listed}; batch {batch}"
    if len(channels) > 1:
        positions = shape_text(smallest.split("x", 1)[1])
        return [shape[0] for shape in shapes], "channels", f"{positions} positions, batch {batch}"
    label = "image side, pixels" if len(shapes[0]) == 3 else "sequence length"
    few = f"{shapes[0][0]} channel{'s' * (shapes[0][0] != 1)}"
    return [shape[-1] for shape in shapes], label, f"{few}, batch {batch}"
