"""The points of a runtime suite: what several processes measured of one case, as one, and whether it can be trusted."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from harness.reporting.statistics.statistics import slope
from harness.reporting.tables.cells import Line

# Beyond these a point is marked as unstable. They are parts of the median.
LARGEST_SPREAD = 0.25  # interquartile range
LARGEST_DRIFT = 0.1  # from the first half of the rounds to the second
LARGEST_GAP = 0.15  # from the fastest process to the slowest
LEAST_CPU_SHARE = 0.9  # of a core that one thread on a CPU should have for itself

FITTED_POINTS = 4


def merged(lines: Iterable[Line], threads: int) -> list[dict[str, Any]]:
    """One line for each layer, operation and point, from those of all processes, in order of first appearance.

    Times are medians over the processes, `iqr_ms`, errors and memory the largest of theirs. `gap` is how far the
    medians of the processes lie apart, as a part of the smallest; None for one process. `unstable` lists what lies
    beyond the bounds above. Where every process failed, the first failure stands.

    Args:
        lines: of `results.plan_lines`.
        threads: of the trials.
    """
    groups: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        key = tuple(line[name] for name in ("sweep", "shape", "batch", "layer", "operation"))
        groups.setdefault(key, []).append(line)
    return [_merge(group, threads) for group in groups.values()]


def _merge(group: Sequence[Line], threads: int) -> dict[str, Any]:
    timed = [line for line in group if line["status"] == "ok" and line.get("median_ms") is not None]
    if not timed:
        return {**group[0], "unstable": ()}
    medians = [line["median_ms"] for line in timed]
    gap = max(medians) / min(medians) - 1 if len(timed) > 1 else None
    point = {
        **timed[0],
        "median_ms": statistics.median(medians),
        "iqr_ms": max(line["iqr_ms"] for line in timed),
        "gap": gap,
        "unstable": tuple(_complaints(group, timed, gap, threads)),
    }
    for name in ("inverse_error", "peak_bytes"):
        known = [line[name] for line in timed if line.get(name) is not None]
        point[name] = max(known) if known else None
    copies = [line["copy_ms"] for line in timed if line.get("copy_ms") is not None]
    point["copy_ms"] = statistics.median(copies) if copies else None
    return point


def _complaints(group: Sequence[Line], timed: Sequence[Line], gap: float | None, threads: int) -> Iterable[str]:
    spread = max(line["iqr_ms"] / line["median_ms"] for line in timed)
    if spread > LARGEST_SPREAD:
        yield f"interquartile range {spread:.0%} of the median"
    drift = max((line.get("drift") or 0.0 for line in timed), key=abs)
    if abs(drift) > LARGEST_DRIFT:
        yield f"{drift:+.0%} from the first half of the rounds to the second"
    if gap is not None and gap > LARGEST_GAP:
        yield f"processes {gap:.0%} apart"
    shares = [line["cpu_share"] for line in timed if line.get("cpu_share") is not None]
    if shares and threads == 1 and timed[0].get("device") == "cpu" and min(shares) < LEAST_CPU_SHARE:
        yield f"had {min(shares):.0%} of its core"
    if len(timed) < len(group):
        yield f"{len(timed)} of {len(group)} processes"


def entries(point: Line) -> int:
    """Numbers in the tensor of a point: batch times D."""
    return int(point["batch"]) * math.prod(map(int, str(point["shape"]).split("x")))


def growth(points: Iterable[Line]) -> tuple[float, float] | None:
    """(p, half width of its 95 % interval) of time ~ entries^p; None with fewer than three points.

    A straight line through the logarithms of the largest `FITTED_POINTS` points of one layer and operation, by
    least squares: at smaller ones the price of calling operators hides the growth.
    """
    timed = sorted((entries(point), point["median_ms"]) for point in points if point.get("median_ms") is not None)
    largest = np.log(np.array(timed[-FITTED_POINTS:], dtype=float).reshape(-1, 2))
    if len(largest) < 3 or np.ptp(largest[:, 0]) == 0:
        return None
    return slope(largest[:, 0], largest[:, 1])
