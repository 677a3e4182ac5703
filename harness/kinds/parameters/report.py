"""The report of a suite that counts parameters: the counts of each data set, beside published ones."""

from __future__ import annotations

import statistics
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import pandas as pd

from harness.reporting.compare.measure import Measure
from harness.reporting.frame import Row, groups_of, rows_of
from harness.reporting.report import Report
from harness.reporting.tables.cells import EMPTY, Notes, count_cell, layer_cell
from harness.reporting.tables.rendering import Table

if TYPE_CHECKING:
    from harness.planning.plan import Plan


class ParametersReport(Report, kind="parameters"):
    """Counts of parameters at each width; in a comparison a change is not a fault in itself."""

    measure: ClassVar[Measure] = Measure(
        value=lambda row: row.parameters,
        text=lambda rows: f"{statistics.fmean(row.parameters for row in rows):,.0f}",
    )

    @cached_property
    def tables(self) -> list[Table]:
        """Counts of the built models at each width, with and without masked entries, and the published ones."""
        plan = self.results.plan
        return [_table(plan, column, models) for column, models in groups_of(self.results.frame, "dataset")]


def _table(plan: Plan, column: str, frame: pd.DataFrame) -> Table:
    notes = Notes()
    widths = sorted(frame["width"].unique())
    by_case = {(line.layer, line.width): line for line in rows_of(frame)}
    published = {line.layer: line for line in rows_of(frame.dropna(subset="published"))}
    header = ["layer", *(f"width {width}" for width in widths), *(f"width {width}, unmasked" for width in widths)]
    if plan.published is not None:
        header += ["published", "at width", "equal"]
    rows = []
    for row in plan.rows:
        cells = [layer_cell(row, frame, notes)]
        cells += [count_cell(by_case.get((row, width)), "parameters", notes) for width in widths]
        cells += [count_cell(by_case.get((row, width)), "masked_free", notes) for width in widths]
        if plan.published is not None:
            cells += _comparison(published.get(row))
        rows.append(tuple(cells))
    remarks = notes.numbered()
    if plan.published is not None:
        remarks += (f"published: {plan.published.source}",)
    caption = (
        f"Parameters of the {column} models as built, by coupling width; unmasked: entries that a mask hides from "
        "the map do not count."
    )
    return Table(f"{plan.suite}-parameters-{column}", caption, tuple(header), tuple(rows), remarks)


def _comparison(line: Row | None) -> list[str]:
    if line is None:
        return [EMPTY] * 3
    equal = EMPTY if pd.isna(line.parameters) else "yes" if line.parameters == line.published else "no"
    return [f"{line.published:,}", str(line.width), equal]
