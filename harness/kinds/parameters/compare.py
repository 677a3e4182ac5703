"""Compare counts of parameters."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from harness.reporting.compare.measure import Measure, Row


class CountMeasure(Measure):
    """The number of parameters of a model; a change is not a fault in itself."""

    def value(self, row: Row) -> float | None:
        """Return the count."""
        value: float | None = row.get("parameters")
        return value

    def faults(self, first: Row, second: Row) -> list[str]:
        """Return nothing: the change is judged."""
        return []

    def text(self, values: Sequence[float], rows: Sequence[Row]) -> str:
        """Return the count with separators."""
        return f"{statistics.fmean(values):,.0f}"
