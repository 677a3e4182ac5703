"""Compare counts of parameters."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import ClassVar

from harness.reporting.compare.measure import Measure, Row


class CountMeasure(Measure):
    """The number of parameters of a model; a change is not a fault in itself."""

    column: ClassVar[str] = "parameters"

    def text(self, values: Sequence[float], rows: Sequence[Row]) -> str:
        """Return the count with separators."""
        return f"{statistics.fmean(values):,.0f}"


measure = CountMeasure("parameters")
