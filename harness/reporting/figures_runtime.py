"""Runtime curves: time against what a sweep varies, a panel per operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from harness.reporting.cells import OPERATIONS, Line, shape_text
from harness.reporting.figure_style import colour, logarithmic, marker, panels, plain

if TYPE_CHECKING:
    from harness.planning.plan import Plan


def sweep_figure(plan: Plan, sweep: str, lines: Sequence[Line]) -> Figure | None:
    """Median milliseconds on a log scale, one curve per layer, its interquartile range as a band."""
    timed = [line for line in lines if line.get("median_ms") is not None]
    if not timed:
        return None
    operations = list(dict.fromkeys(line["operation"] for line in timed))
    axis_of, label, rest = varying(timed)
    figure, grid = panels(len(operations), 3.1, 3.4, share_y=True)
    for axes, operation in zip(grid, operations, strict=True):
        for position, row in enumerate(plan.rows):
            mine = [line for line in timed if (line["layer"], line["operation"]) == (row, operation)]
            mine.sort(key=axis_of)
            places = [axis_of(line) for line in mine]
            middle = [line["median_ms"] for line in mine]
            half = [line["iqr_ms"] / 2 for line in mine]
            look: dict[str, Any] = {"color": colour(position), "marker": marker(position), "markersize": 4.5}
            axes.plot(places, middle, label=plain(row), **look)
            low = [max(m - h, m / 10) for m, h in zip(middle, half, strict=True)]
            high = [m + h for m, h in zip(middle, half, strict=True)]
            axes.fill_between(places, low, high, color=colour(position), alpha=0.18, linewidth=0)
        axes.set_title(OPERATIONS[operation])
        axes.set_xlabel(label)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        ticks = sorted({axis_of(line) for line in timed})
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        logarithmic(axes.yaxis)
    grid[0].set_ylabel("ms, median ± half the interquartile range")
    handles, names = grid[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center")
    figure.suptitle(plain(f"{sweep}: {rest}"), x=0.01, ha="left", fontsize=10)
    return figure


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
    return (lambda line: int(line["shape"].split("x")[-1])), label, f"{min(channels)} channels, {fixed_batch}"
