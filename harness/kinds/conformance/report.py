"""The report of a suite that checks layers."""

from __future__ import annotations

from functools import cached_property

from harness.kinds.conformance.answer import answer
from harness.kinds.conformance.tables import tables
from harness.reporting.page.answer import Answer
from harness.reporting.report import Report
from harness.reporting.tables.rendering import Table


class ConformanceReport(Report, kind="conformance"):
    """See the module."""

    @cached_property
    def tables(self) -> list[Table]:
        """The tables, in order."""
        return tables(self.results)

    @cached_property
    def answer(self) -> Answer | None:
        """The answer to the question of the suite."""
        return answer(self.results)
