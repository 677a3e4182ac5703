"""Training curves: the loss on the training batches and on the validation split, against the step."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.kinds.density.likelihoods import UNITS, Curve, average, curve, trained, units
from harness.reporting.figures.figure_style import (
    INK,
    footnotes,
    inner_range,
    looks,
    padded,
    panels,
    plain,
    row_handles,
    side_legend,
)
from harness.reporting.frame import Results

HEADING = "Training curves"
ORDER = 5

MOST_DRAWN = 50  # seeds of a row that an SVG file holds as lines

SETTLED = 0.15  # the share of the steps whose first, steep part may leave the panel


def figures(results: Results) -> dict[str, Figure]:
    """Return a panel per data set: validation solid, its seeds thin; the training loss dotted, mean over seeds."""
    if not trained(results, "true_validation").empty:  # some of the curves are of values that are no likelihoods
        return {}
    plan, frame = results.plan, results.of_kind("density")
    curves = {
        (name, trial): points
        for name in ("train", "validation")
        for trial in frame["id"]
        if trial in results.records and (points := curve(results.records[trial], name))
    }
    frame = frame[frame["id"].isin(trial for _, trial in curves)]
    columns = [column for column in plan.columns if (frame["dataset"] == column).any()]
    if not columns:
        return {}
    chosen = {row: look for row, look in looks(plan).items() if (frame["layer"] == row).any()}
    beyond = []
    figure, grid = panels(len(columns), 3.4, 3.2, columns=3)
    for axes, column in zip(grid, columns, strict=True):
        shown: dict[str, Curve] = {}
        for row, look in chosen.items():
            trials = frame.loc[(frame["dataset"] == column) & (frame["layer"] == row), "id"]
            for name, line in (("train", ":"), ("validation", "-")):
                seeds = [curves[name, trial] for trial in trials if (name, trial) in curves]
                if not seeds:
                    continue
                middle = average(seeds)
                shown[f"{row} {name}"] = middle
                width, at_end = (1.2, "") if name == "train" else (2, look.marker)
                axes.plot(
                    *zip(*middle, strict=True), line, color=look.colour, linewidth=width, marker=at_end, markevery=[-1]
                )
                if name == "validation" and len(seeds) > 1:
                    thin = LineCollection(seeds, color=look.colour, linewidth=0.6, alpha=0.5)
                    thin.set_rasterized(len(seeds) > MOST_DRAWN)
                    axes.add_collection(thin)
        lowest, highest = inner_range([points[-1][1] for points in shown.values()])
        near = [points for points in shown.values() if lowest <= points[-1][1] <= highest]
        far = [f"{name} {points[-1][1]:.3g}" for name, points in shown.items() if points not in near]
        beyond += [f"beyond the panel of {column} at the end: {', '.join(far)}"] if far else []
        axes.set_ylim(*limits(near))
        axes.set_title(plain(column))
        axes.set_xlabel("training step")
        axes.set_ylabel(UNITS[units(results)[column]])
    handles = [
        *row_handles(chosen, linewidth=2),
        Line2D([], [], color=INK, linewidth=2, label="validation"),
        Line2D([], [], color=INK, linewidth=1.2, linestyle=":", label="training batches"),
    ]
    side_legend(figure, handles)
    footnotes(figure, beyond)
    return {"training": figure}


def limits(curves: Sequence[Curve]) -> tuple[float, float]:
    """Return a range that shows all of every curve but its steep beginning."""
    last = max(step for points in curves for step, _ in points)
    values = [value for points in curves for step, value in points if step >= SETTLED * last]
    values = values or [value for points in curves for _, value in points]
    return padded(min(values), max(values), 0.06)
