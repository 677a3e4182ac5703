"""The tuned layers of each data set by their mean, with their distance to the best one."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from harness.kinds.density.captions import interval_texts
from harness.kinds.density.likelihoods import UNITS, Ranking, members_of, ranking, units
from harness.kinds.density.tuning.searches import tuning_text
from harness.reporting.figures.figure_style import (
    INK,
    PALE,
    ROW_HEIGHT,
    Look,
    arrow,
    footnotes,
    inner_range,
    layer_axis,
    looks,
    panels,
    plain,
)
from harness.reporting.frame import Results
from harness.reporting.statistics.statistics import LEAST_SEEDS

HEADING = "Ranking"
ORDER = 0

TESTED = (
    f"; from {LEAST_SEEDS} seeds or repetitions on, a paired t test after Holm's correction decides this, not the bar"
)
PAD, ROOM = 0.12, 0.3  # of the range: left of the points, and right of them for a value


def figures(results: Results) -> dict[str, Figure]:
    """Return a panel per data set or average whose leads have intervals; none without such a data set."""
    plan = results.plan
    rankings = {label: ranking(results, label) for label in (*plan.columns, *plan.means)}
    shown = {label: rank for label, rank in rankings.items() if rank.leaders}
    if not shown:
        return {}
    rows = max(len(rank.rows) for rank in shown.values())
    figure, grid = panels(len(shown), 3.6, ROW_HEIGHT * rows + 1.0, columns=3)
    chosen = looks(plan)
    for axes, (label, rank) in zip(grid, shown.items(), strict=True):
        unit = UNITS[units(results)[members_of(plan, label)[0]]]
        axes.set_title(plain(label))
        axes.set_xlabel(f"behind the lowest mean, {unit}")
        _draw(axes, rank, chosen, unit)
    notes = [
        *interval_texts(difference for rank in shown.values() for difference in rank.differences.values()),
        "shaded: not shown to be behind the lowest mean"
        + (TESTED if any(rank.tested for rank in shown.values()) else ""),
        *(f"not ranked: {label}" for label in rankings if label not in shown),
    ]
    footnotes(figure, [*notes, tuning_text(results)])
    return {"ranking": figure}


def _draw(axes: Axes, competition: Ranking, chosen: dict[str, Look], unit: str) -> None:
    order = competition.order
    behind = {row: difference for row in order if (difference := competition.behind(row)) is not None}
    ends = {row: difference.interval or (difference.estimate.mean,) * 2 for row, difference in behind.items()}
    _, high = inner_range([0.0, *(difference.estimate.mean for difference in behind.values())])
    near = [row for row in behind if behind[row].estimate.mean <= high]
    low = min([0.0, *(ends[row][0] for row in near)])  # the best one is shown however far ahead
    high = max([high, *(ends[row][1] for row in near)])
    reach = (high - low) or 1e-3 / PAD
    axes.set_xlim(low - PAD * reach, high + ROOM * reach)
    layer_axis(axes, order)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    for row in competition.leaders:
        axes.axhspan(order.index(row) - 0.5, order.index(row) + 0.5, color=PALE, alpha=0.45, linewidth=0)
    axes.axvline(0, color=INK, linewidth=1)
    beside: dict[str, Any] = {"xytext": (8, 0), "textcoords": "offset points", "va": "center", "fontsize": 7.5}
    for place, row in enumerate(order):
        look, mean = chosen[row], 0.0 if row not in behind else behind[row].estimate.mean
        if row not in behind:
            axes.plot(0, place, color=look.colour, marker=look.marker, markersize=7)
            text = f"{competition.means[row]:.3f} {unit}"
            axes.annotate(text, (0, place), **beside)
        elif row in near:
            bars = [[mean - ends[row][0]], [ends[row][1] - mean]]
            axes.errorbar(mean, place, xerr=bars, color=look.colour, marker=look.marker, markersize=7, capsize=3)
            # Right of the bar, which ends beyond 0: above the mean it could cross the line at 0.
            axes.annotate(f"{mean:+.3f}", (ends[row][1], place), **beside)
        else:
            arrow(axes, place, f"{mean:+.3f}", look.colour, "x", upward=True)
