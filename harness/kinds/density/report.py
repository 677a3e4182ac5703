"""The report of a density suite: likelihoods, their differences, leads and costs."""

from __future__ import annotations

from functools import cached_property

from harness.kinds.density.answer import answer
from harness.kinds.density.tables import tables
from harness.kinds.density.tables.equal_terms import equal_terms_table
from harness.reporting.page.answer import Answer
from harness.reporting.report import Report
from harness.reporting.tables.rendering import Table


class DensityReport(Report, kind="density"):
    """See the module."""

    @cached_property
    def tables(self) -> list[Table]:
        """The tables, in order."""
        return tables(self.results)

    @cached_property
    def answer(self) -> Answer | None:
        """The answer to the question of the suite."""
        return answer(self.results)

    def table_at(self, terms: str) -> Table:
        """Return the likelihoods at equal steps, seconds, parameters or width."""
        return equal_terms_table(self.results, terms)
