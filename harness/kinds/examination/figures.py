"""Figures of what a training is examined for: a claimed likelihood beside the true one, singular values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.core.records import Record
from harness.kinds.density.figure_training import average, curve
from harness.reporting.figures.figure_style import INK, colour, marker, panels, plain
from harness.reporting.statistics.likelihoods import UNITS

if TYPE_CHECKING:
    from harness.planning.plan import Plan

CLAIMED: dict[str, Any] = {"color": colour(1), "label": "claimed by the released accounting"}
TRUE: dict[str, Any] = {"color": colour(0), "label": "true, of the same weights"}
FAIR: dict[str, Any] = {"color": colour(2), "linestyle": ":", "label": "true, trained on it"}
FLOOR: dict[str, Any] = {"color": INK, "linestyle": "--", "linewidth": 1.2, "label": "resolution floor"}


def accounting_figure(plan: Plan, records: Sequence[Record]) -> Figure | None:
    """A panel per layer, validation over training, mean over seeds: what the released accounting claims, what is true
    of the same weights, the training on the true log-determinant, and the floor that no density can pass. None where
    every training was on the true one.
    """
    density = [record for record in records if record.trial["kind"] == "density" and curve(record, "validation")]
    rows = [
        row
        for row in plan.rows
        if any(record.trial["layer"]["row"] == row and curve(record, "true_validation") for record in density)
    ]
    if not rows:
        return None
    figure, grid = panels(len(rows), 3.1, 3.6, share_y=True, columns=3)
    for axes, row in zip(grid, rows, strict=True):
        mine = [record for record in density if record.trial["layer"]["row"] == row]
        released = [record for record in mine if curve(record, "true_validation")]
        fair = [record for record in mine if record not in released]
        for found, name, look in (
            (released, "validation", CLAIMED),
            (released, "true_validation", TRUE),
            (fair, "validation", FAIR),
        ):
            if found:
                axes.plot(*zip(*average([curve(record, name) for record in found]), strict=True), **look)
        floors = {record.rows[0]["floor"] for record in mine if record.rows and record.rows[0].get("floor") is not None}
        for floor in sorted(floors):
            axes.axhline(floor, **FLOOR)
        axes.set_title(plain(row))
        axes.set_xlabel("training step")
    grid[0].set_ylabel(f"validation, {UNITS[_unit(density)]} (lower is better)")
    handles = [Line2D([], [], **look) for look in (CLAIMED, TRUE, FAIR, FLOOR)]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _unit(records: Sequence[Record]) -> str:
    return next((str(record.rows[0]["unit"]) for record in records if record.rows), "nats_per_dim")


def singular_figure(plan: Plan, records: Sequence[Record]) -> Figure | None:
    """A panel per data set: the smallest singular value of any watched layer over training, a line per seed, and a mark
    at every evaluation before which a step took a determinant across zero; None where nothing was watched.
    """
    watched = [record for record in records if curve(record, "smallest_singular_value")]
    columns = [c for c in plan.columns if any(record.trial["data"]["label"] == c for record in watched)]
    if not columns:
        return None
    figure, grid = panels(len(columns), 3.4, 2.9, share_y=True, columns=2)
    for axes, column in zip(grid, columns, strict=True):
        for record in watched:
            if record.trial["data"]["label"] != column:
                continue
            position = plan.rows.index(record.trial["layer"]["row"])
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
