"""Figures of a density suite: the likelihood of each layer on each data set, and the layers' times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from harness.reporting.figures.figure_style import COLOURS, INK, colour, layer_axis, logarithmic, marker, panels, plain
from harness.reporting.statistics.likelihoods import UNITS, suspect, unit_of
from harness.reporting.statistics.statistics import estimate
from harness.reporting.tables.cells import OPERATIONS, Line, failed_status, shape_text

if TYPE_CHECKING:
    from harness.planning.plan import Plan

ROW_HEIGHT = 0.36  # inches


def likelihood_figure(plan: Plan, lines: Sequence[Line]) -> Figure | None:
    """A panel per data set: every seed as a small dot, their mean and its bootstrap interval beside it."""
    density = [line for line in lines if line["kind"] == "density"]
    if not any(line.get("nats_per_dim") is not None or line.get("bits_per_dim") is not None for line in density):
        return None
    height = ROW_HEIGHT * len(plan.rows) + 1.0
    figure, grid = panels(len(plan.columns), 2.6, height, share_y=True)
    seeds = False
    hollow = False
    for axes, column in zip(grid, plan.columns, strict=True):
        unit = unit_of(density, column)
        axes.set_title(plain(column))
        axes.set_xlabel(f"{UNITS[unit]} (lower is better)")
        layer_axis(axes, plan.rows)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        for position, row in enumerate(plan.rows):
            mine = [line for line in density if (line["layer"], line["dataset"]) == (row, column)]
            good = [line for line in mine if line["status"] == "ok" and line.get(unit) is not None]
            values = [line[unit] for line in good]
            if not values:
                status = "/".join(sorted({failed_status(line) for line in mine}))
                axes.text(0.03, position, status, transform=axes.get_yaxis_transform(), va="center", style="italic")
                continue
            doubtful = any(suspect(line) for line in good)
            hollow |= doubtful
            face = "white" if doubtful else colour(position)
            look: dict[str, Any] = {"color": colour(position), "marker": marker(position), "markerfacecolor": face}
            if len(values) > 1:
                seeds = True
                axes.plot(values, [position + 0.24] * len(values), ".", color=colour(position), alpha=0.6, markersize=5)
                found = estimate(values)
                low, high = found.bars
                axes.errorbar(found.mean, position, xerr=[[low], [high]], markersize=7, capsize=3, **look)
            else:
                axes.plot(values, [position], linestyle="none", markersize=7, **look)
    notes = ["mean and its 95 % bootstrap interval over seeds; small dots: single seeds"] if seeds else []
    notes += ["hollow: audit failed or below the resolution floor, not to be compared"] if hollow else []
    if notes:
        figure.supxlabel("; ".join(notes), fontsize=8, color=INK)
    return figure


def cost_figure(plan: Plan, lines: Sequence[Line]) -> Figure | None:
    """A panel per data set's event shape: median time of each operation of the layer alone, with its spread."""
    timed = [line for line in lines if line["kind"] == "runtime" and line.get("median_ms") is not None]
    if not timed:
        return None
    points = list(dict.fromkeys((line["sweep"], line["shape"], line["batch"]) for line in timed))
    operations = list(dict.fromkeys(line["operation"] for line in timed))
    figure, grid = panels(len(points), 3.2, ROW_HEIGHT * len(plan.rows) + 1.2, share_y=True, columns=3)
    for axes, (sweep, shape, batch) in zip(grid, points, strict=True):
        axes.set_title(plain(f"{sweep}: {shape_text(shape)}, batch {batch}"))
        axes.set_xlabel("ms, median ± half the interquartile range")
        axes.set_xscale("log")
        logarithmic(axes.xaxis)
        layer_axis(axes, plan.rows)
        for number, operation in enumerate(operations):
            mine = {
                line["layer"]: line
                for line in timed
                if (line["sweep"], line["shape"], line["batch"], line["operation"]) == (sweep, shape, batch, operation)
            }
            rows = [row for row in plan.rows if row in mine]
            axes.errorbar(
                [mine[row]["median_ms"] for row in rows],
                [plan.rows.index(row) + 0.22 * (number - (len(operations) - 1) / 2) for row in rows],
                xerr=[mine[row]["iqr_ms"] / 2 for row in rows],
                linestyle="none",
                elinewidth=1.2,
                marker=marker(number),
                color=COLOURS[number],
                markersize=6,
                capsize=2,
                label=OPERATIONS[operation],
            )
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(operations))
    return figure
