"""The smallest singular value of the layers over training."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.kinds.density.likelihoods import curve, trained
from harness.reporting.figures.figure_style import INK, looks, panels, plain, row_handles
from harness.reporting.frame import Results, rows_of

HEADING = "Smallest singular value"
ORDER = 6


def figures(results: Results) -> dict[str, Figure]:
    """Return a panel per data set: the smallest singular value of any watched layer over training, a line per seed.

    A mark stands at every evaluation before which a step took a determinant across zero. None if nothing was watched.
    """
    plan, watched = results.plan, trained(results, "smallest_singular_value")
    columns = [column for column in plan.columns if (watched["dataset"] == column).any()]
    if not columns:
        return {}
    shown = looks(plan)
    figure, grid = panels(len(columns), 3.4, 2.9, share_y=True, columns=2)
    for axes, column in zip(grid, columns, strict=True):
        for line in rows_of(watched[watched["dataset"] == column]):
            look, record = shown[line.layer], results.records[line.id]
            points = curve(record, "smallest_singular_value")
            axes.plot(*zip(*points, strict=True), color=look.colour, linewidth=1.2)
            counts = dict(curve(record, "crossings"))
            values = dict(points)
            crossed = [
                step for before, step in zip([0, *counts], counts, strict=False) if counts[step] > counts.get(before, 0)
            ]
            axes.plot(
                crossed,
                [values[step] for step in crossed if step in values],
                linestyle="none",
                marker=look.marker,
                color=look.colour,
                markersize=5,
            )
        axes.set_yscale("log")
        axes.set_title(plain(column))
        axes.set_xlabel("training step")
    figure.supylabel("smallest singular value of any layer", fontsize=9, color=INK)
    handles = row_handles(shown, marker="")
    crossing = "a step before crossed a singular matrix"
    handles.append(Line2D([], [], color=INK, linestyle="none", marker="o", label=crossing))
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return {"singular": figure}
