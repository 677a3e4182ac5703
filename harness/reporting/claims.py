"""The report of a suite of claims: a section for each claim, with what was found and whether it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.records import Record
from harness.reporting.cells import Line
from harness.reporting.judges import JUDGES, UNDECIDED, Verdict
from harness.reporting.rendering import Table, escape_markdown, markdown, one_line
from harness.reporting.results import MISSING, plan_lines
from harness.reporting.tables import status_line, tables

if TYPE_CHECKING:
    from harness.planning.plan import Plan, Section


@dataclass(frozen=True)
class Examined:
    """One claim after its test.

    Attributes:
        section: the claim, its place, its test.
        part: the plan of its suite.
        records, lines: of its trials.
        verdict: of its judge.
        tables: the judge's own, then those of its suite.
    """

    section: Section
    part: Plan
    records: tuple[Record, ...]
    lines: tuple[Line, ...]
    verdict: Verdict
    tables: tuple[Table, ...]


def examine(plan: Plan, records: Sequence[Record]) -> list[Examined]:
    """Judge every claim of a plan by the records that there are."""
    return [_examined(plan, section, records) for section in plan.sections]


def _examined(plan: Plan, section: Section, records: Sequence[Record]) -> Examined:
    part = plan.part(section)
    ids = {trial.id for trial in part.trials}
    mine = tuple(record for record in records if record.id in ids)
    lines = tuple(plan_lines(mine, part))
    waiting = len({line["id"] for line in lines if line["status"] == MISSING})
    if waiting:
        verdict = Verdict(UNDECIDED, f"{waiting} of its {len(ids)} trials have not run yet.")
    elif section.judge not in JUDGES:
        verdict = Verdict(UNDECIDED, f"this version has no judge {section.judge!r}.")
    else:
        verdict = JUDGES[section.judge](part, lines, mine)
    return Examined(section, part, mine, lines, verdict, (*verdict.tables, *tables(part, lines)))


def summary(examined: Sequence[Examined]) -> Table:
    """The verdicts in one table."""
    rows = tuple((one.section.claim, one.section.where, one.verdict.holds, one.verdict.text) for one in examined)
    return Table("claims", "Each claim of the publication and what was found.", ("claim", "where", "", "found"), rows)


def section_text(one: Examined) -> str:
    """A section as Markdown."""
    about = one.section
    facts = {"Claim": f"{about.claim} ({about.where})", "Test": about.test}
    parts = [f"## {one_line(about.name.replace('-', ' '))}: {one.verdict.holds}"]
    parts += [f"**{name}.** {escape_markdown(text)}" for name, text in facts.items()]
    parts += [f"**Found.** {escape_markdown(one.verdict.text)}", *map(markdown, one.tables), status_line(one.lines)]
    return "\n\n".join(parts)
