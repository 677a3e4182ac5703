"""The page of a suite of claims: the verdicts, then a section for each claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from harness.reporting.claims import Examined, summary
from harness.reporting.page_sections import Section, figure_parts


def claims_sections(examined: Sequence[Examined], drawn: Mapping[str, Figure]) -> list[Section]:
    """All verdicts in one table; then for each claim its sentence, test, result and verdict, tables and figures.

    Args:
        examined: the claims.
        drawn: as `figures.drawn` gives them for such a plan: by the claim's name, a hyphen and the figure's.
    """
    sections = [Section("Verdicts", tables=(summary(examined),))]
    for number, one in enumerate(examined):
        mine = {name: figure for name, figure in drawn.items() if name.startswith(f"{one.section.name}-")}
        own = {name.removeprefix(f"{one.section.name}-"): figure for name, figure in mine.items()}
        by_heading = figure_parts(own, prefix=f"c{number}")
        parts = tuple(replace(part, heading=heading) for heading, parts in by_heading.items() for part in parts)
        sections.append(Section(one.title, one.paragraphs, one.tables, parts))
    return sections
