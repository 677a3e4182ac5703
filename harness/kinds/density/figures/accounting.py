"""A claimed likelihood beside the true one, over training."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.kinds.density.likelihoods import UNITS, average, curve, trained
from harness.reporting.figures.figure_style import COLOURS, INK, panels, plain
from harness.reporting.frame import Results

HEADING = "Claimed and true likelihood"
ORDER = 4

CLAIMED: dict[str, Any] = {"color": COLOURS[1], "label": "claimed by the released accounting"}
TRUE: dict[str, Any] = {"color": COLOURS[0], "label": "true, of the same weights"}
FAIR: dict[str, Any] = {"color": COLOURS[2], "linestyle": ":", "label": "true, trained on it"}
FLOOR: dict[str, Any] = {"color": INK, "linestyle": "--", "linewidth": 1.2, "label": "resolution floor"}


def figures(results: Results) -> dict[str, Figure]:
    """Return a panel per layer, validation over training, mean over seeds; none if every training was on the truth."""
    plan, frame = results.plan, trained(results, "validation")
    released = trained(results, "true_validation")
    rows = [row for row in plan.rows if (released["layer"] == row).any()]
    if not rows:
        return {}
    figure, grid = panels(len(rows), 3.1, 3.6, share_y=True, columns=3)
    for axes, row in zip(grid, rows, strict=True):
        of_row = frame[frame["layer"] == row]
        claiming = of_row["id"].isin(released["id"])
        for trials, name, look in (
            (of_row.loc[claiming, "id"], "validation", CLAIMED),
            (of_row.loc[claiming, "id"], "true_validation", TRUE),
            (of_row.loc[~claiming, "id"], "validation", FAIR),
        ):
            if len(trials):
                seeds = [curve(results.records[trial], name) for trial in trials]
                axes.plot(*zip(*average(seeds), strict=True), **look)
        for floor in sorted(of_row["floor"].dropna().unique()):
            axes.axhline(floor, **FLOOR)
        axes.set_title(plain(row))
        axes.set_xlabel("training step")
    unit = next(iter(frame["unit"].dropna()), "nats_per_dim")
    grid[0].set_ylabel(f"validation, {UNITS[unit]} (lower is better)")
    handles = [Line2D([], [], **look) for look in (CLAIMED, TRUE, FAIR, FLOOR)]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(2, len(rows)))
    return {"accounting": figure}
