"""Compare times: medians of one machine, whose spreads must not overlap."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import ClassVar

from harness.core.records import Record
from harness.reporting.compare.measure import Measure, Row, Spread
from harness.reporting.frame import described, machine_of
from harness.reporting.tables.cells import milliseconds


class TimeMeasure(Measure):
    """Median time of one operation, in milliseconds."""

    column: ClassVar[str] = "median_ms"

    def obstacle(self, first: tuple[Row, Record], second: tuple[Row, Record]) -> str | None:
        """Return that the machines differ."""
        machines = [machine_of(record) for _, record in (first, second)]
        if machines[0] == machines[1]:
            return None
        return f"times of different machines: {' and '.join(map(described, machines))}"

    def spread(self, rows: Sequence[Row]) -> Spread:
        """Return the median over processes, with the interquartile range or, if wider, the range of the processes."""
        medians = [row["median_ms"] for row in rows]
        middle = statistics.median(medians)
        gap = middle * (max(medians) / min(medians) - 1)
        half = max(gap, *(row["iqr_ms"] for row in rows)) / 2
        return Spread(middle, middle - half, middle + half)

    def text(self, values: Sequence[float], rows: Sequence[Row]) -> str:
        """Return the median over processes."""
        return f"{milliseconds(statistics.median(values))} ms"


measure = TimeMeasure("runtime")
