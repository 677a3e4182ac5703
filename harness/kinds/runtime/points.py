"""The points of a runtime suite: the measurements of a case in several processes as one, and whether it is stable."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from harness.reporting.frame import Row
from harness.reporting.statistics.statistics import slope

# Beyond these a point is marked as unstable. They are parts of the median.
LARGEST_SPREAD = 0.25  # interquartile range
LARGEST_DRIFT = 0.1  # from the first half of the rounds to the second
LARGEST_GAP = 0.15  # from the fastest process to the slowest
LEAST_CPU_SHARE = 0.9  # of a core that one thread on a CPU should have for itself
LARGEST_CPU_SHARE = 1.15  # of the cores that torch's threads can use: more are threads or processes of the layer

APART = 2  # times; one case timed twice on a shared machine differs by up to half as much (docs/performance/timing.md)

FITTED_SPAN = 16  # the largest point of a fit has so many times the entries of the smallest

CASE = ["sweep", "shape", "batch", "layer", "operation"]


def merged(frame: pd.DataFrame, threads: int) -> pd.DataFrame:
    """Return one row for each layer, operation and point, from those of all processes, in order of first appearance.

    Times are medians over the processes, `iqr_ms`, errors and memory the largest of theirs. Further columns are `gap`,
    the distance between the medians of the processes as a part of the smallest, NA for one process; `low` and `high`,
    the ends of the spread about the median, which is the interquartile range, or the gap if that is wider; `entries`
    of the point's tensor; `unstable`, whether it exceeds a bound above. If all fail, the first failure stands.
    """
    measured = (frame["status"] == "ok") & frame["median_ms"].notna()
    timed = frame[measured].assign(spread=frame["iqr_ms"] / frame["median_ms"], drift=frame["drift"].fillna(0))
    planned, cases = frame.groupby(CASE), timed.groupby(CASE)
    medians = cases["median_ms"]
    order = frame.drop_duplicates(CASE).set_index(CASE).index
    points = pd.concat([timed, frame[~measured]]).drop_duplicates(CASE).set_index(CASE).loc[order]
    points = points.assign(
        median_ms=medians.median(),
        inverse_error=planned["inverse_error"].max(),
        peak_bytes=planned["peak_bytes"].max(),
        outside_bytes=planned["outside_bytes"].max(),
        iqr_ms=cases["iqr_ms"].max(),
        spread=cases["spread"].max(),
        drift=cases["drift"].max().where(cases["drift"].max() >= -cases["drift"].min(), cases["drift"].min()),
        gap=(medians.max() / medians.min() - 1).where(cases.size() > 1),
        cpu_share=cases["cpu_share"].min(),
        most_cpu_share=cases["cpu_share"].max(),
        timed=cases.size(),
        processes=planned.size(),
    ).reset_index()
    half = (points["gap"].fillna(0) * points["median_ms"]).clip(lower=points["iqr_ms"]) / 2
    sizes = [math.prod(map(int, shape.split("x"))) for shape in points["shape"]]
    return points.assign(
        low=points["median_ms"] - half,
        high=points["median_ms"] + half,
        entries=points["batch"] * np.array(sizes, int),
        unstable=_unstable(points, threads),
    )


def _unstable(points: pd.DataFrame, threads: int) -> pd.Series:
    """Return which of the points that were timed exceed a bound above, or lack a process."""
    on_cpu = points["device"] == "cpu"
    return points["timed"].notna() & (
        (points["spread"] > LARGEST_SPREAD)
        | (points["drift"].abs() > LARGEST_DRIFT)
        | (points["gap"].fillna(0) > LARGEST_GAP)
        | ((points["cpu_share"].fillna(1) < LEAST_CPU_SHARE) & on_cpu & (threads == 1))
        | ((points["most_cpu_share"].fillna(0) > LARGEST_CPU_SHARE * threads) & on_cpu)
        | (points["timed"] < points["processes"])
    ).fillna(False)


def clearly_faster(one: Row, other: Row) -> bool:
    """Return whether a point took less time: the spreads do not meet, and lie `APART` where either is unstable."""
    margin = APART if one.unstable or other.unstable else 1
    return bool(margin * one.high < other.low)


def largest(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points within `FITTED_SPAN` of the largest: at smaller ones calling operators hides the growth."""
    return points[points["entries"] * FITTED_SPAN >= points["entries"].max()]


def growth(points: pd.DataFrame) -> tuple[float, float] | None:
    """Return (p, half width of its 95 % interval) of time ~ entries^p, by least squares; None under three points."""
    timed = points[["entries", "median_ms"]].dropna().astype(float)
    entries, times = np.log(timed.to_numpy()).T
    if len(timed) < 3 or np.ptp(entries) == 0:
        return None
    return slope(entries, times)
