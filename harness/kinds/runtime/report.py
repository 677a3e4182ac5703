"""The report of a runtime suite: times, their growth, memory and errors by sweep."""

from __future__ import annotations

from functools import cached_property

from harness.kinds.runtime.answer import answer
from harness.kinds.runtime.tables import tables
from harness.reporting.page.answer import Answer
from harness.reporting.report import Report
from harness.reporting.tables.rendering import Table


class RuntimeReport(Report, kind="runtime"):
    """See the module."""

    @cached_property
    def tables(self) -> list[Table]:
        """The tables, in order."""
        return tables(self.results)

    @cached_property
    def answer(self) -> Answer | None:
        """The answer to the question of the suite."""
        return answer(self.results)
