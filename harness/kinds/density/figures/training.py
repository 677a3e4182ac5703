"""Training curves: the loss on the training batches and on the validation split, against the step."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.kinds.density.curves import Curve, average, curve, trained
from harness.kinds.density.likelihoods import UNITS, units
from harness.reporting.figures.figure_style import INK, colour, panels, plain, side_legend
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
    figure, grid = panels(len(columns), 3.4, 3.2, columns=3)
    for axes, column in zip(grid, columns, strict=True):
        shown: list[Curve] = []
        for position, row in enumerate(plan.rows):
            trials = frame.loc[(frame["dataset"] == column) & (frame["layer"] == row), "id"]
            for name, line in (("train", ":"), ("validation", "-")):
                seeds = [curves[name, trial] for trial in trials if (name, trial) in curves]
                if not seeds:
                    continue
                middle = average(seeds)
                shown.append(middle)
                axes.plot(
                    *zip(*middle, strict=True), line, color=colour(position), linewidth=1.2 if name == "train" else 2
                )
                if name == "validation" and len(seeds) > 1:
                    thin = LineCollection(seeds, color=colour(position), linewidth=0.6, alpha=0.5)
                    thin.set_rasterized(len(seeds) > MOST_DRAWN)
                    axes.add_collection(thin)
        axes.set_ylim(*limits(shown))
        axes.set_title(plain(column))
        axes.set_xlabel("training step")
        axes.set_ylabel(UNITS[units(results)[column]])
    handles = [Line2D([], [], color=colour(i), linewidth=2, label=plain(row)) for i, row in enumerate(plan.rows)]
    handles += [
        Line2D([], [], color=INK, linewidth=2, label="validation"),
        Line2D([], [], color=INK, linewidth=1.2, linestyle=":", label="training batches"),
    ]
    side_legend(figure, handles)
    return {"training": figure}


def limits(curves: Sequence[Curve]) -> tuple[float, float]:
    """Return a range that shows all of every curve but its steep beginning."""
    last = max(step for points in curves for step, _ in points)
    values = [value for points in curves for step, value in points if step >= SETTLED * last]
    values = values or [value for points in curves for _, value in points]
    low, high = min(values), max(values)
    pad = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return low - pad, high + pad
