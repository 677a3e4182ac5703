"""The report of a suite of claims: the verdicts, then a section for each claim with its test and what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from harness.kinds.claims.claims import ExaminedClaim, examine
from harness.reporting.figures.figures import ReportFigure, drawn
from harness.reporting.page.page_sections import PageFigure, PageSection
from harness.reporting.suite_report import SuiteReport
from harness.reporting.tables.rendering import Table, escape_markdown, markdown

FIGURES = ("accounting", "singular", "likelihood", "training", "runtime")
"""The beginnings of the names of figures that a claim's section has."""

SHOWN = ("accounting", "singular")
"""Figures that stand in the text, as the claim is about what they show."""

HEADER = ("claim", "verdict", "in one line")


class ClaimsReport(SuiteReport):
    """The verdict on every claim, with the tables and figures behind it."""

    @cached_property
    def examined(self) -> list[ExaminedClaim]:
        """The claims after their tests."""
        return examine(self.results)

    @cached_property
    def tables(self) -> list[Table]:
        """The verdicts, then the tables of every claim."""
        return [self.summary, *(table for claim in self.examined for table in claim.tables)]

    @cached_property
    def figures(self) -> list[ReportFigure]:
        """The figures of every claim; their names begin with that of the claim."""
        return [
            replace(figure, name=f"{claim.section.name}-{figure.name}")
            for claim in self.examined
            for figure in drawn(claim.results)
            if figure.name.startswith(FIGURES)
        ]

    @property
    def summary(self) -> Table:
        """The verdicts in one table."""
        rows = tuple((claim.title, claim.verdict.holds, claim.verdict.short) for claim in self.examined)
        caption = "Each claim of the publication and what was found."
        return Table("claims", caption, HEADER, rows, words=frozenset({1, 2}))

    def paragraphs(self) -> list[str]:
        """Return the verdicts, linked to their sections, then the sections."""
        return [self._summary_text(), self.results.status_line, *map(self._section_text, self.examined)]

    def _summary_text(self) -> str:
        """Return the verdicts as Markdown, not padded, as one long cell would widen all."""
        rows = [HEADER, ("---",) * len(HEADER)]
        rows += [
            (
                f"[{escape_markdown(claim.title)}](#{claim.section.name})",
                f"**{claim.verdict.holds}**",
                escape_markdown(claim.verdict.short),
            )
            for claim in self.examined
        ]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def _section_text(self, claim: ExaminedClaim) -> str:
        parts = [f"## {escape_markdown(claim.title)}"]
        parts += [f"**{heading}.** {escape_markdown(text)}" for heading, text in claim.paragraphs]
        names = {figure.name for figure in self.figures}
        shown = [name for name in SHOWN if f"{claim.section.name}-{name}" in names]
        parts += [f"![{claim.title}: {name}](figures/{claim.section.name}-{name}.png)" for name in shown]
        return "\n\n".join([*parts, *map(markdown, claim.tables), claim.results.status_line])

    def sections(self, figures: Sequence[PageFigure], beside: Sequence[Table]) -> list[PageSection]:
        """Return the verdicts, then for each claim its sentence, test, result, verdict, tables and figures."""
        names = sorted((claim.section.name for claim in self.examined), key=len, reverse=True)
        owned: dict[str, list[PageFigure]] = {}
        for figure in figures:
            owner = next((name for name in names if figure.name.startswith(f"{name}-")), "")
            owned.setdefault(owner, []).append(figure)
        made = [PageSection("Verdicts", tables=(self.summary,))]
        for claim in self.examined:
            own = tuple(owned.get(claim.section.name, ()))
            made.append(PageSection(claim.title, claim.paragraphs, claim.tables, own))
        if beside:
            made.append(PageSection("Beside them", tables=tuple(beside), figures=tuple(owned.get("", ()))))
        return made
