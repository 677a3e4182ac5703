"""Expected lowest validation value against the number of candidates of the tuning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from harness.kinds.density.likelihoods import UNITS, units
from harness.kinds.density.trial import CandidateTrial
from harness.reporting.figures.figure_style import footnotes, looks, padded, panels, plain, row_handles, side_legend
from harness.reporting.frame import MISSING, Results, groups_of
from harness.reporting.statistics.expected_best import ExpectedBest, mean_expected_best

HEADING = "Tuning"
ORDER = 3

OUTCOME = ("candidate", "status", "audit", "validation")
STEEP = 3  # times the height of the second half of the lines that the first half may add to a panel


def figures(results: Results) -> dict[str, Figure]:
    """Return a panel per data set: a line per layer, with its bootstrap band; none without candidates."""
    plan = results.plan
    curves: dict[str, dict[str, list[list[float]]]] = {}  # of each repetition, or one that all seeds share
    failed = repeated = False
    frame = results.of_kind("tuning")[["dataset", "layer", "repetition", *OUTCOME]]  # groups of all columns take long
    for (column, row), tunings in groups_of(frame, ["dataset", "layer"]):
        for _, candidates in tunings.groupby("repetition", dropna=False):
            values, failures = outcomes(candidates)
            if values:
                curves.setdefault(column, {}).setdefault(row, []).append(values)
                failed |= failures > 0
        repeated |= len(curves.get(column, {}).get(row, [])) > 1
    columns = [column for column in plan.columns if column in curves]
    if not columns:
        return {}
    shown = looks(plan)
    figure, grid = panels(len(columns), 3.4, 3.2, columns=3)
    for axes, column in zip(grid, columns, strict=True):
        expected = {row: mean_expected_best(values) for row, values in curves[column].items()}
        for row, best in expected.items():
            look, number = shown[row], np.arange(1, len(best.mean) + 1)
            axes.plot(number, best.mean, color=look.colour, marker=look.marker, markersize=4)
            axes.fill_between(number, best.low, best.high, color=look.colour, alpha=0.12, linewidth=0)
        axes.set_ylim(*limits(list(expected.values())))
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set_title(plain(column))
        axes.set_xlabel("candidates")
        axes.set_ylabel(UNITS[units(results)[column]])
    drawn = {row: look for row, look in shown.items() if any(row in curves[column] for column in columns)}
    side_legend(figure, row_handles(drawn, markersize=4))
    short = any(isinstance(trial, CandidateTrial) and trial.short for trial in plan.trials)
    notes = ["expected lowest validation value of that many candidates"]
    notes += ["band: 95 % bootstrap interval over candidates"]
    notes += ["lines and bands: means over repetitions, each with candidates of its own"] if repeated else []
    notes += ["a failed candidate counts as the highest value of its layer on the data set"] if failed else []
    notes += ["a candidate that ended early counts with its value at that step"] if short else []
    footnotes(figure, notes)
    return {"tuning": figure}


def limits(shown: Sequence[ExpectedBest]) -> tuple[float, float]:
    """Return a range that shows the lines, but for a steep beginning, and the lower ends of their bands."""
    low = min(float(np.nanmin([*best.low, best.mean[-1]])) for best in shown)
    first = max(best.mean[0] for best in shown)
    middle = max(best.mean[len(best.mean) // 2] for best in shown)
    high = min(first, low + STEEP * (middle - low))
    return padded(low, high, 0.06)


def outcomes(candidates: pd.DataFrame) -> tuple[list[float], int]:
    """Return the validation values of a layer's candidates and the number that failed.

    A candidate that failed counts as the highest value of the others; one that has not run yet is left out. Of several
    trials of a candidate the last that has run counts.
    """
    run = candidates[candidates["status"] != MISSING].drop_duplicates("candidate", keep="last")
    valid = (run["status"] == "ok") & (run["audit"] != "failed").fillna(True) & run["validation"].notna()
    values = [float(value) for value in run.loc[valid, "validation"]]
    failures = len(run) - len(values)
    return (values + [max(values)] * failures if values else []), failures
