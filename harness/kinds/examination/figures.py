"""Figures of trainings: a claimed likelihood beside the true one, and the smallest singular values."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.kinds.density.curves import average, curve
from harness.kinds.density.likelihoods import UNITS
from harness.reporting.figures.figure_style import INK, colour, marker, panels, plain
from harness.reporting.frame import Results, rows_of

CLAIMED: dict[str, Any] = {"color": colour(1), "label": "claimed by the released accounting"}
TRUE: dict[str, Any] = {"color": colour(0), "label": "true, of the same weights"}
FAIR: dict[str, Any] = {"color": colour(2), "linestyle": ":", "label": "true, trained on it"}
FLOOR: dict[str, Any] = {"color": INK, "linestyle": "--", "linewidth": 1.2, "label": "resolution floor"}


def accounting_figure(results: Results) -> Figure | None:
    """Return a panel per layer, validation over training, mean over seeds; None if every training was on the truth.

    Curves are what the released accounting claims, what is true of the same weights, and the training on the true
    log-determinant; a line is the resolution floor that no density can pass.
    """
    plan, frame = results.plan, _trained(results, "validation")
    released = _trained(results, "true_validation")
    rows = [row for row in plan.rows if (released["layer"] == row).any()]
    if not rows:
        return None
    figure, grid = panels(len(rows), 3.1, 3.6, share_y=True, columns=3)
    for axes, row in zip(grid, rows, strict=True):
        own = frame[frame["layer"] == row]
        claiming = own["id"].isin(released["id"])
        for trials, name, look in (
            (own.loc[claiming, "id"], "validation", CLAIMED),
            (own.loc[claiming, "id"], "true_validation", TRUE),
            (own.loc[~claiming, "id"], "validation", FAIR),
        ):
            if len(trials):
                seeds = [curve(results.records[trial], name) for trial in trials]
                axes.plot(*zip(*average(seeds), strict=True), **look)
        for floor in sorted(own["floor"].dropna().unique()):
            axes.axhline(floor, **FLOOR)
        axes.set_title(plain(row))
        axes.set_xlabel("training step")
    unit = next(iter(frame["unit"].dropna()), "nats_per_dim")
    grid[0].set_ylabel(f"validation, {UNITS[unit]} (lower is better)")
    handles = [Line2D([], [], **look) for look in (CLAIMED, TRUE, FAIR, FLOOR)]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _trained(results: Results, name: str) -> pd.DataFrame:
    """Return the rows of density trials whose record has this curve."""
    frame = results.of_kind("density")
    return frame[[trial in results.records and bool(curve(results.records[trial], name)) for trial in frame["id"]]]


def singular_figure(results: Results) -> Figure | None:
    """Return a panel per data set: the smallest singular value of any watched layer over training, a line per seed.

    A mark stands at every evaluation before which a step took a determinant across zero. None if nothing was watched.
    """
    plan, watched = results.plan, _trained(results, "smallest_singular_value")
    columns = [column for column in plan.columns if (watched["dataset"] == column).any()]
    if not columns:
        return None
    figure, grid = panels(len(columns), 3.4, 2.9, share_y=True, columns=2)
    for axes, column in zip(grid, columns, strict=True):
        for line in rows_of(watched[watched["dataset"] == column]):
            position, record = plan.rows.index(line.layer), results.records[line.id]
            points = curve(record, "smallest_singular_value")
            axes.plot(*zip(*points, strict=True), color=colour(position), linewidth=1.2)
            counts = dict(curve(record, "crossings"))
            values = dict(points)
            crossed = [
                step for before, step in zip([0, *counts], counts, strict=False) if counts[step] > counts.get(before, 0)
            ]
            axes.plot(
                crossed,
                [values[step] for step in crossed if step in values],
                linestyle="none",
                marker=marker(position),
                color=colour(position),
                markersize=5,
            )
        axes.set_yscale("log")
        axes.set_title(plain(column))
        axes.set_xlabel("training step")
    figure.supylabel("smallest singular value of any layer", fontsize=9, color=INK)
    handles = [Line2D([], [], color=colour(i), label=plain(row)) for i, row in enumerate(plan.rows)]
    crossing = "a step before crossed a singular matrix"
    handles.append(Line2D([], [], color=INK, linestyle="none", marker="o", label=crossing))
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure
