"""Compare times: medians of one machine, whose spreads must not overlap."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from harness.reporting.compare.measure import Measure, Spread
from harness.reporting.frame import Row
from harness.reporting.tables.cells import milliseconds


def spread(rows: Sequence[Row]) -> Spread:
    """Return the median over processes, with the interquartile range or, if wider, the range of the processes."""
    medians = [row.median_ms for row in rows]
    middle = statistics.median(medians)
    gap = middle * (max(medians) / min(medians) - 1)
    half = max(gap, *(row.iqr_ms for row in rows)) / 2
    return middle - half, middle, middle + half


measure = Measure(
    value=lambda row: row.median_ms,
    text=lambda rows: f"{milliseconds(spread(rows)[1])} ms",
    spread=spread,
)
