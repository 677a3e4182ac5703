"""The report of a suite of examinations."""

from __future__ import annotations

from functools import cached_property

from harness.kinds.examination.tables import tables
from harness.reporting.report import Report
from harness.reporting.tables.rendering import Table


class ExaminationReport(Report, kind="examination"):
    """See the module."""

    @cached_property
    def tables(self) -> list[Table]:
        """The tables, in order."""
        return tables(self.results)
