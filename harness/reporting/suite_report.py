"""The content of a report: tables, figures, and how both stand in Markdown and on the page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from harness.core.kinds import kind_of
from harness.reporting.figures.figures import ReportFigure, drawn
from harness.reporting.frame import Results
from harness.reporting.page.page_sections import PageFigure, PageSection
from harness.reporting.tables.rendering import Table, markdown


class SuiteReport:
    """The report of a suite: its tables, then its figures by heading. A kind may have a subclass of its own.

    Attributes:
        results: of the suite.
    """

    def __init__(self, results: Results) -> None:
        self.results = results

    @cached_property
    def tables(self) -> list[Table]:
        """The tables, in order."""
        return self.results.tables

    @cached_property
    def figures(self) -> list[ReportFigure]:
        """The figures, in order."""
        return drawn(self.results)

    def paragraphs(self) -> list[str]:
        """Return what table.md has below the question, as Markdown."""
        return [*map(markdown, self.tables), self.results.status_line]

    def sections(self, figures: Sequence[PageFigure], beside: Sequence[Table]) -> list[PageSection]:
        """Return the sections of the page.

        Args:
            figures: those of the report, then those that the command asked for.
            beside: tables that the command asked for.
        """
        by_heading: dict[str, list[PageFigure]] = {}
        for figure in figures:
            by_heading.setdefault(figure.heading, []).append(figure)
        shown = [PageSection(heading, figures=tuple(group)) for heading, group in by_heading.items()]
        tables = PageSection("Tables", tables=(*self.tables, *beside))
        return [*shown, tables] if kind_of(self.results.plan.kind).figures_first else [tables, *shown]


def suite_report(results: Results) -> SuiteReport:
    """Return the report that the kind of the plan makes, or the usual one."""
    return kind_of(results.plan.kind).report(results) or SuiteReport(results)
