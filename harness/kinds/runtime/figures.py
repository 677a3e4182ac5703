"""Runtime curves: time against what a sweep varies, a panel per operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from harness.kinds.runtime.points import merged
from harness.kinds.runtime.trial import RuntimeTrial
from harness.reporting.figures.figure_style import INK, colour, logarithmic, marker, panels, plain, side_legend
from harness.reporting.tables.cells import OPERATIONS, Line, shape_text

if TYPE_CHECKING:
    from harness.planning.plan import Plan

MIXER = "conv1x1"
"""The layer that every other one stands beside, in all its parameterisations: it has a figure of its own."""


def sweep_figures(plan: Plan, sweep: str, lines: Sequence[Line]) -> dict[str, Figure]:
    """Figures of one sweep by suffix of their names: "" with the layers, "-conv1x1" with the 1x1 convolutions."""
    trials = [trial for trial in plan.trials if isinstance(trial, RuntimeTrial) and trial.sweep == sweep]
    points = [line for line in merged(lines, trials[0].threads) if line.get("median_ms") is not None]
    mixers = {ref.row for trial in trials for ref in trial.layers if ref.layer == MIXER}
    made = {}
    for suffix, rows in (("", set(plan.rows) - mixers), (f"-{MIXER}", mixers)):
        mine = [line for line in points if line["layer"] in rows]
        if mine:
            made[suffix] = _figure(plan, sweep, mine, ", 1×1 convolutions" if suffix else "")
    return made


def _figure(plan: Plan, sweep: str, points: Sequence[Line], which: str) -> Figure:
    """Median milliseconds on a log scale, one curve per layer, and that of copying the tensor."""
    operations = [name for name in OPERATIONS if any(line["operation"] == name for line in points)]
    axis_of, label, rest = varying(points)
    figure, grid = panels(len(operations), 3.1, 3.4, share_y=True)
    ticks = sorted({axis_of(line) for line in points})
    for axes, operation in zip(grid, operations, strict=True):
        timed = [line for line in points if line["operation"] == operation]
        for position, row in enumerate(plan.rows):
            mine = sorted((line for line in timed if line["layer"] == row), key=axis_of)
            if mine:
                _curve(axes, [axis_of(line) for line in mine], mine, position, row)
        copies = {axis_of(line): line["copy_ms"] for line in timed if line.get("copy_ms") is not None}
        if copies:
            places = sorted(copies)
            axes.plot(places, [copies[place] for place in places], color="#777777", linestyle="--", label="copy")
        axes.set_title(OPERATIONS[operation])
        axes.set_xlabel(label)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        logarithmic(axes.yaxis)
    grid[0].set_ylabel("ms, median, and its spread")
    handles, names = grid[0].get_legend_handles_labels()
    side_legend(figure, handles, names)
    figure.suptitle(plain(f"{sweep}: {rest}{which}"), x=0.01, ha="left", fontsize=10)
    if any(line["unstable"] for line in points):
        figure.supxlabel("hollow: unstable, † in the tables", fontsize=8, color=INK)
    return figure


def _curve(axes: Axes, places: Sequence[int], points: Sequence[Line], position: int, row: str) -> None:
    """Medians with a band: the interquartile range, or what lies between the processes if that is wider.

    A point that is not stable is hollow.
    """
    look: dict[str, Any] = {"color": colour(position), "marker": marker(position), "markersize": 4.5}
    middle = [line["median_ms"] for line in points]
    axes.plot(places, middle, label=plain(row), **look)
    shaky = [(place, line["median_ms"]) for place, line in zip(places, points, strict=True) if line["unstable"]]
    if shaky:
        axes.plot(*zip(*shaky, strict=True), linestyle="", markerfacecolor="white", **look)
    half = [max(line["iqr_ms"], (line.get("gap") or 0.0) * line["median_ms"]) / 2 for line in points]
    low = [max(m - h, m / 10) for m, h in zip(middle, half, strict=True)]
    high = [m + h for m, h in zip(middle, half, strict=True)]
    axes.fill_between(places, low, high, color=colour(position), alpha=0.18, linewidth=0)


def varying(lines: Sequence[Line]) -> tuple[Callable[[Line], int], str, str]:
    """What varies along a sweep: (its value for a line, the axis label, what stays the same)."""
    shapes = {line["shape"] for line in lines}
    batches = {line["batch"] for line in lines}
    channels = {shape.split("x")[0] for shape in shapes}
    fixed_batch = f"batch {min(batches)}"
    if len(batches) > 1:
        return (lambda line: line["batch"]), "batch size", shape_text(min(shapes))
    if len(channels) > 1:
        spatial = shape_text(min(shapes).split("x", 1)[1])
        return (lambda line: int(line["shape"].split("x")[0])), "channels", f"{spatial} positions, {fixed_batch}"
    label = "image side, pixels" if min(shapes).count("x") == 2 else "sequence length"
    few = f"{min(channels)} channel{'s' if min(channels) != '1' else ''}"
    return (lambda line: int(line["shape"].split("x")[-1])), label, f"{few}, {fixed_batch}"
