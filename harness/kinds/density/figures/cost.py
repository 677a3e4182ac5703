"""Times of the layers alone, at the shapes of the data sets."""

from __future__ import annotations

from matplotlib.figure import Figure

from harness.reporting.figures.figure_style import COLOURS, MARKERS, ROW_HEIGHT, layer_axis, logarithmic, panels, plain
from harness.reporting.frame import Results, groups_of
from harness.reporting.tables.cells import OPERATIONS, shape_text

HEADING = "Time of a layer"
ORDER = 3


def figures(results: Results) -> dict[str, Figure]:
    """Return a panel per data set's event shape: median time of each operation of the layer alone, with its spread."""
    plan, timed = results.plan, results.of_kind("runtime").dropna(subset="median_ms")
    if timed.empty:
        return {}
    points = list(groups_of(timed, ["sweep", "shape", "batch"]))
    operations = timed["operation"].unique()
    figure, grid = panels(len(points), 3.2, ROW_HEIGHT * len(plan.rows) + 1.2, share_y=True, columns=3)
    for axes, ((sweep, shape, batch), point) in zip(grid, points, strict=True):
        axes.set_title(plain(f"{sweep}: {shape_text(shape)}, batch {batch}"))
        axes.set_xlabel("ms, median ± half the interquartile range")
        axes.set_xscale("log")
        logarithmic(axes.xaxis)
        layer_axis(axes, plan.rows)
        for number, operation in enumerate(operations):
            times = point[point["operation"] == operation].set_index("layer")
            times = times.reindex([row for row in plan.rows if row in times.index])
            axes.errorbar(
                list(times["median_ms"]),
                [plan.rows.index(row) + 0.22 * (number - (len(operations) - 1) / 2) for row in times.index],
                xerr=list(times["iqr_ms"] / 2),
                linestyle="none",
                elinewidth=1.2,
                marker=MARKERS[number],
                color=COLOURS[number],
                markersize=6,
                capsize=2,
                label=OPERATIONS[operation],
            )
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(operations))
    return {"cost": figure}
