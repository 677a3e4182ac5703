"""The report of a suite of claims: the verdicts, then a section for each claim with its test and its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from harness.core.texts import one_line
from harness.kinds.claims.judges import JUDGES
from harness.kinds.claims.verdicts import Holds, Verdict, nothing_to_judge
from harness.planning.plan import Section
from harness.reporting.figures.figures import Form, ReportFigure, drawn
from harness.reporting.frame import DAMAGED, MISSING, Results
from harness.reporting.page.answer import Answer, Finding, Tone
from harness.reporting.page.page import PageSection
from harness.reporting.report import Report, ReportedResults
from harness.reporting.tables.rendering import Table, escape_markdown, markdown

FIGURES = ("accounting", "singular", "likelihood", "training", "runtime")  # beginnings of the names of its figures
SHOWN = ("accounting", "singular")  # figures shown in the text, because the claim is about them
TONES: dict[Holds, Tone] = {"holds": "good", "holds in part": "part", "does not hold": "bad", "undecided": "open"}
HEADER = ("claim", "verdict", "in one line")


@dataclass(frozen=True)
class ExaminedClaim:
    """One claim after its test."""

    section: Section
    results: Results  # of its suite
    verdict: Verdict
    tables: tuple[Table, ...]  # of the judge, then of its suite; none before anything has run

    @property
    def title(self) -> str:
        """The heading; as an anchor of Markdown it is the claim's name."""
        return one_line(self.section.name.replace("-", " "))

    @property
    def paragraphs(self) -> tuple[tuple[str, str], ...]:
        """(heading, plain text): the claim, its place, the test, the findings, the verdict."""
        about = self.section
        texts = (about.claim, about.where, about.test, self.verdict.text, f"{self.verdict.holds}.")
        return tuple(zip(("Claim", "Where", "Test", "Found", "Verdict"), map(one_line, texts), strict=True))

    @property
    def finding(self) -> Finding:
        """The verdict in one line."""
        verdict = self.verdict
        return Finding(self.title, verdict.holds, TONES[verdict.holds], one_line(verdict.short), self.title)


def _examined(section: Section, results: ReportedResults) -> ExaminedClaim:
    states = [*results.statuses.values()]
    lacking = {"not run yet": states.count(MISSING), "damaged records": states.count(DAMAGED)}
    short = ""
    if any(lacking.values()):
        short = "; ".join(f"{why}: {number} of {len(states)} trials" for why, number in lacking.items() if number)
    elif section.judge not in JUDGES:
        short = f"this version has no judge {section.judge!r}"
    verdict = Verdict("undecided", short, f"{short}.") if short else JUDGES[section.judge](results)
    verdict = verdict or nothing_to_judge(results)
    tables = (*verdict.tables, *results.report.tables) if results.records else ()
    return ExaminedClaim(section, results, verdict, tables)


class ClaimsReport(Report, kind="claims"):
    """The verdict on every claim, with the tables and figures behind it."""

    @cached_property
    def examined(self) -> list[ExaminedClaim]:
        """The claims after their tests."""
        pairs = zip(self.results.plan.sections, self.results.parts, strict=True)
        return [_examined(section, part) for section, part in pairs]

    @cached_property
    def answer(self) -> Answer:
        """The verdicts, with the first figure that a claim is about."""
        shown = tuple(f"{claim.section.name}-{name}" for name in SHOWN for claim in self.examined)
        return Answer(tuple(claim.finding for claim in self.examined), figures=shown)

    @cached_property
    def tables(self) -> list[Table]:
        """The verdicts, then the tables of every claim."""
        return [self.summary, *(table for claim in self.examined for table in claim.tables)]

    def figures_as(self, form: Form) -> list[ReportFigure]:
        """Return the figures of every claim; their names begin with that of the claim."""
        drawn_figures = drawn([claim.results for claim in self.examined], FIGURES, form, self.progress)
        return [
            replace(figure, name=f"{claim.section.name}-{figure.name}")
            for claim, figures in zip(self.examined, drawn_figures, strict=True)
            for figure in figures
        ]

    @property
    def summary(self) -> Table:
        """The verdicts in one table."""
        rows = tuple((claim.title, claim.verdict.holds, claim.verdict.short) for claim in self.examined)
        caption = "Each claim of the publication and what was found."
        return Table("claims", caption, HEADER, rows, words=frozenset({1, 2}))

    def markdown_paragraphs(self) -> list[str]:
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

    def sections(self, figures: Sequence[ReportFigure], beside: Sequence[Table]) -> list[PageSection]:
        """Return for each claim its sentence, test, result, verdict, tables and figures."""
        names = sorted((claim.section.name for claim in self.examined), key=len, reverse=True)
        owned: dict[str, list[ReportFigure]] = {}
        for figure in figures:
            owner = next((name for name in names if figure.name.startswith(f"{name}-")), "")
            owned.setdefault(owner, []).append(figure)
        made = []
        for claim in self.examined:
            shown = tuple(owned.get(claim.section.name, ()))
            made.append(PageSection(claim.title, claim.paragraphs, claim.tables, shown, claim.finding, folded=True))
        if beside:
            made.append(PageSection("Beside them", tables=tuple(beside), figures=tuple(owned.get("", ()))))
        return made
