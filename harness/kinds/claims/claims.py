"""The report of a suite of claims: a section for each claim, with the findings and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.kinds.claims.judges import JUDGES
from harness.kinds.claims.verdicts import UNDECIDED, Verdict
from harness.reporting.frame import MISSING, Results
from harness.reporting.tables.rendering import Table, one_line

if TYPE_CHECKING:
    from harness.planning.plan import Section

SHOWN = ("accounting", "singular")
"""Figures that stand in the text, as their claims are about them."""


@dataclass(frozen=True)
class ExaminedClaim:
    """One claim after its test.

    Attributes:
        section: the claim, its place, its test.
        results: of its suite.
        verdict: of its judge.
        tables: the judge's own, then those of its suite; none before anything has run.
    """

    section: Section
    results: Results
    verdict: Verdict
    tables: tuple[Table, ...]

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


def examine(results: Results) -> list[ExaminedClaim]:
    """Judge every claim of a plan by its results."""
    return [_examined(section, part) for section, part in zip(results.plan.sections, results.parts, strict=True)]


def _examined(section: Section, results: Results) -> ExaminedClaim:
    statuses = list(results.statuses.values())
    waiting = statuses.count(MISSING)
    if waiting:
        short = f"{waiting} of its {len(statuses)} trials have not run yet"
        verdict = Verdict(UNDECIDED, short, f"{short}.")
    elif section.judge not in JUDGES:
        short = f"this version has no judge {section.judge!r}"
        verdict = Verdict(UNDECIDED, short, f"{short}.")
    else:
        verdict = JUDGES[section.judge](results)
    tables = (*verdict.tables, *results.tables) if results.records else ()
    return ExaminedClaim(section, results, verdict, tables)
