"""Training curves: the loss on the training batches and on the validation split, against the step."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.core.records import Record
from harness.reporting.figures.figure_style import INK, colour, panels, plain, side_legend
from harness.reporting.results import plan_lines
from harness.reporting.statistics.likelihoods import UNITS, unit_of

if TYPE_CHECKING:
    from harness.planning.plan import Plan

Curve = list[tuple[float, float]]

SETTLED = 0.15  # the share of the steps whose first, steep part may leave the panel


def training_figure(plan: Plan, records: Sequence[Record]) -> Figure | None:
    """A panel per data set: validation solid, its seeds thin; the training loss dotted, mean over seeds."""
    curves = {
        (record.trial["data"]["label"], record.trial["layer"]["row"], record.trial["seed"], name): curve(record, name)
        for record in records
        if record.trial["kind"] == "density"
        for name in ("train", "validation")
    }
    curves = {key: points for key, points in curves.items() if points}
    columns = [column for column in plan.columns if any(key[0] == column for key in curves)]
    if not columns:
        return None
    lines = [line for line in plan_lines(records, plan) if line["kind"] == "density"]
    figure, grid = panels(len(columns), 3.4, 3.2, columns=3)
    for axes, column in zip(grid, columns, strict=True):
        shown: list[Curve] = []
        for position, row in enumerate(plan.rows):
            for name, line in (("train", ":"), ("validation", "-")):
                seeds = [points for key, points in curves.items() if (*key[:2], key[3]) == (column, row, name)]
                if not seeds:
                    continue
                middle = average(seeds)
                shown.append(middle)
                axes.plot(
                    *zip(*middle, strict=True), line, color=colour(position), linewidth=1.2 if name == "train" else 2
                )
                if name == "validation" and len(seeds) > 1:
                    for points in seeds:
                        axes.plot(*zip(*points, strict=True), color=colour(position), linewidth=0.6, alpha=0.5)
        axes.set_ylim(*limits(shown))
        axes.set_title(plain(column))
        axes.set_xlabel("training step")
        axes.set_ylabel(UNITS[unit_of(lines, column)])
    handles = [Line2D([], [], color=colour(i), linewidth=2, label=plain(row)) for i, row in enumerate(plan.rows)]
    handles += [
        Line2D([], [], color=INK, linewidth=2, label="validation"),
        Line2D([], [], color=INK, linewidth=1.2, linestyle=":", label="training batches"),
    ]
    side_legend(figure, handles)
    return figure


def curve(record: Record, name: str) -> Curve:
    """The finite points (step, value) of one curve of a record."""
    steps, values = record.curves.get("step", []), record.curves.get(name, [])
    pairs = zip(steps, values, strict=False)
    return [(step, value) for step, value in pairs if step is not None and value is not None]


def average(seeds: Sequence[Curve]) -> Curve:
    """The mean over seeds at every step that one of them has; those that stopped early count up to there."""
    by_step: dict[float, list[float]] = {}
    for points in seeds:
        for step, value in points:
            by_step.setdefault(step, []).append(value)
    return [(step, statistics.fmean(by_step[step])) for step in sorted(by_step)]


def limits(curves: Sequence[Curve]) -> tuple[float, float]:
    """A range that shows all of every curve but its steep beginning."""
    last = max(step for points in curves for step, _ in points)
    values = [value for points in curves for step, value in points if step >= SETTLED * last]
    values = values or [value for points in curves for _, value in points]
    low, high = min(values), max(values)
    pad = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return low - pad, high + pad
