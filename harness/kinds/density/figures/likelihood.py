"""The likelihood of each layer on each data set."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from harness.kinds.density.captions import bars_texts, pair_words
from harness.kinds.density.likelihoods import IMPROVING, UNITS, density, of_column, share_of, standard_error, units
from harness.kinds.density.tuning.searches import tuning_text
from harness.reporting.figures.figure_style import (
    ROW_HEIGHT,
    arrow,
    footnotes,
    inner_range,
    layer_axis,
    looks,
    padded,
    panels,
    plain,
    value_above,
)
from harness.reporting.frame import Results
from harness.reporting.statistics.statistics import Estimate, estimate

HEADING = "Likelihood"
ORDER = 1


def figures(results: Results) -> dict[str, Figure]:
    """Return a panel per data set: each seed or repetition as a small dot, the mean with its uncertainty beside."""
    plan, frame = results.plan, density(results)
    if frame[["nats_per_dim", "bits_per_dim"]].isna().all(axis=None):
        return {}
    height = ROW_HEIGHT * len(plan.rows) + 1.0
    figure, grid = panels(len(plan.columns), 2.6, height, share_y=True)
    shown = list[Estimate]()
    chosen = list(looks(plan).values())
    hollow = improving = False
    for axes, column in zip(grid, plan.columns, strict=True):
        axes.set_title(plain(column))
        axes.set_xlabel(f"{UNITS[units(results)[column]]} (lower is better)")
        layer_axis(axes, plan.rows)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        measured = frame.loc[(frame["dataset"] == column) & frame["value"].notna()]
        low, high = limits(measured)
        axes.set_xlim(low, high)
        for position, planned in enumerate(of_column(frame, plan, column).values()):
            good = planned[planned["value"].notna()]
            values = list(good["value"])
            if not values:
                status = "/".join(sorted(planned["failure"].unique()))
                axes.text(0.03, position, status, transform=axes.get_yaxis_transform(), va="center", style="italic")
                continue
            doubtful = bool(good["doubt"].notna().any() or good["exempt"].any())
            hollow |= doubtful
            colour = chosen[position].colour
            shown.append(estimate(values, standard_error(good), share_of(good)))
            mean = shown[-1].mean
            improving |= bool(good["improving"].any())
            text = f"{mean:.3f}" + (f" {IMPROVING}" if good["improving"].any() else "")
            if not low <= mean <= high:
                arrow(axes, position, text, colour, "x", upward=mean > high)
                continue
            face = "white" if doubtful else colour
            look: dict[str, Any] = {"color": colour, "marker": chosen[position].marker, "markerfacecolor": face}
            if len(values) > 1:
                axes.plot(values, [position + 0.24] * len(values), ".", color=colour, alpha=0.6, markersize=5)
            below, above = shown[-1].bars
            axes.errorbar(mean, position, xerr=[[below], [above]], markersize=7, capsize=3, **look)
            value_above(axes, mean, position, text)
    notes = bars_texts(shown)
    words = pair_words(mean_of.share is not None for mean_of in shown if mean_of.seeds > 1)
    notes += [f"small dots: single {words}"] if words else []
    notes += [f"{IMPROVING} still improving when training reached its bound"] if improving else []
    notes += ["hollow: not to be compared (audit failed, below the resolution floor, or not tuned)"] if hollow else []
    footnotes(figure, [*notes, tuning_text(results)])
    return {"likelihood": figure}


def limits(trials: pd.DataFrame) -> tuple[float, float]:
    """Return a range that shows the values of all rows, but of those far from the others."""
    if trials.empty:
        return 0.0, 1.0
    means = trials.groupby("layer")["value"].mean()
    low, high = inner_range(list(means))
    near = trials["layer"].map(means).between(low, high)
    errors = trials["standard_error"].where(trials.groupby("layer")["value"].transform("size") == 1, 0.0).fillna(0.0)
    low, high = ((trials["value"] + sign * errors)[near].agg(end) for sign, end in ((-1, "min"), (1, "max")))
    return padded(float(low), float(high), 0.12)
