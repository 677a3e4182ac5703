"""The likelihood of each layer on each data set."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from harness.kinds.density.likelihoods import IMPROVING, UNITS, bars_texts, density, of_column, standard_error, units
from harness.kinds.density.tuning.searches import tuning_text
from harness.reporting.figures.figure_style import ROW_HEIGHT, colour, footnotes, layer_axis, marker, panels, plain
from harness.reporting.frame import Results
from harness.reporting.statistics.statistics import Estimate, estimate

HEADING = "Likelihood"
ORDER = 1


def figures(results: Results) -> dict[str, Figure]:
    """Return a panel per data set: every seed as a small dot, their mean and its uncertainty beside it."""
    plan, frame = results.plan, density(results)
    if frame[["nats_per_dim", "bits_per_dim"]].isna().all(axis=None):
        return {}
    height = ROW_HEIGHT * len(plan.rows) + 1.0
    figure, grid = panels(len(plan.columns), 2.6, height, share_y=True)
    shown = list[Estimate]()
    hollow = improving = False
    for axes, column in zip(grid, plan.columns, strict=True):
        axes.set_title(plain(column))
        axes.set_xlabel(f"{UNITS[units(results)[column]]} (lower is better)")
        layer_axis(axes, plan.rows)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        for position, planned in enumerate(of_column(frame, plan, column).values()):
            good = planned[planned["value"].notna()]
            values = list(good["value"])
            if not values:
                status = "/".join(sorted(planned["failure"].unique()))
                axes.text(0.03, position, status, transform=axes.get_yaxis_transform(), va="center", style="italic")
                continue
            doubtful = bool(good["doubt"].notna().any() or good["exempt"].any())
            hollow |= doubtful
            face = "white" if doubtful else colour(position)
            look: dict[str, Any] = {"color": colour(position), "marker": marker(position), "markerfacecolor": face}
            if len(values) > 1:
                axes.plot(values, [position + 0.24] * len(values), ".", color=colour(position), alpha=0.6, markersize=5)
            shown.append(estimate(values, standard_error(good)))
            low, high = shown[-1].bars
            axes.errorbar(shown[-1].mean, position, xerr=[[low], [high]], markersize=7, capsize=3, **look)
            if good["improving"].any():
                improving = True
                above: dict[str, Any] = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center", "fontsize": 7}
                axes.annotate(IMPROVING, (shown[-1].mean, position), **above)
    notes = bars_texts(shown)
    notes += ["small dots: single seeds"] if any(found.seeds > 1 for found in shown) else []
    notes += [f"{IMPROVING} still improving when training reached its bound"] if improving else []
    notes += ["hollow: not to be compared (audit failed, below the resolution floor, or not tuned)"] if hollow else []
    footnotes(figure, [*notes, tuning_text(results)])
    return {"likelihood": figure}
