"""The report of a suite of claims: a section for each claim, with the findings and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.kinds.claims.judges import JUDGES
from harness.kinds.claims.verdicts import UNDECIDED, Verdict
from harness.reporting.frame import MISSING, Results
from harness.reporting.tables.rendering import Table, escape_markdown, markdown, one_line

if TYPE_CHECKING:
    from harness.planning.plan import Section

SHOWN = ("accounting", "singular")
"""Figures that stand in the text, as their claims are about them."""


@dataclass(frozen=True)
class Examined:
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


def examine(results: Results) -> list[Examined]:
    """Judge every claim of a plan by its results."""
    return [_examined(section, part) for section, part in zip(results.plan.sections, results.parts, strict=True)]


def _examined(section: Section, results: Results) -> Examined:
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
    return Examined(section, results, verdict, tables)


HEADER = ("claim", "verdict", "in one line")


def summary(examined: Sequence[Examined]) -> Table:
    """Return the verdicts in one table."""
    rows = tuple((claim.title, claim.verdict.holds, claim.verdict.short) for claim in examined)
    return Table("claims", "Each claim of the publication and what was found.", HEADER, rows, words=frozenset({1, 2}))


def summary_text(examined: Sequence[Examined]) -> str:
    """Return the same as Markdown, each claim linked to its section; not padded, as one long cell would widen all."""
    rows = [HEADER, ("---",) * len(HEADER)]
    rows += [
        (
            f"[{escape_markdown(claim.title)}](#{claim.section.name})",
            f"**{claim.verdict.holds}**",
            escape_markdown(claim.verdict.short),
        )
        for claim in examined
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def section_text(claim: Examined, figures: Iterable[str]) -> str:
    """Return a section as Markdown.

    Args:
        claim: the claim.
        figures: names of all of the report's, of which those of `SHOWN` are shown.
    """
    parts = [f"## {escape_markdown(claim.title)}"]
    parts += [f"**{heading}.** {escape_markdown(text)}" for heading, text in claim.paragraphs]
    shown = [name for name in SHOWN if f"{claim.section.name}-{name}" in figures]
    parts += [f"![{claim.title}: {name}](figures/{claim.section.name}-{name}.png)" for name in shown]
    return "\n\n".join([*parts, *map(markdown, claim.tables), claim.results.status_line])
