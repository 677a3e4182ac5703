"""Compare counts of parameters: a change is not a fault in itself."""

import statistics

from harness.reporting.compare.measure import Measure

measure = Measure(
    value=lambda row: row.parameters,
    text=lambda rows: f"{statistics.fmean(row.parameters for row in rows):,.0f}",
)
