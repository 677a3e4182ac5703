"""The page of a suite of claims: the verdicts, then a section for each claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from harness.kinds.claims.claims import Examined, summary
from harness.reporting.page.page_sections import Part, Section, figure_parts
from harness.reporting.tables.rendering import Table


def claims_sections(
    examined: Sequence[Examined], drawn: Mapping[str, Figure], beside: Sequence[Table] = ()
) -> list[Section]:
    """Return all verdicts in one table; then for each claim its sentence, test, result and verdict, tables and figures.

    Args:
        examined: the claims.
        drawn: as `figures.drawn` gives them for such a plan: by the claim's name, a hyphen and the figure's; and what
            was asked for beside it.
        beside: tables asked for.
    """
    owned: dict[str, dict[str, Figure]] = {}
    names = sorted((one.section.name for one in examined), key=len)  # of two that fit, the longer is meant
    for name, figure in drawn.items():
        owner = next((claim for claim in reversed(names) if name.startswith(f"{claim}-")), "")
        owned.setdefault(owner, {})[name.removeprefix(f"{owner}-")] = figure
    sections = [Section("Verdicts", tables=(summary(examined),))]
    for number, one in enumerate(examined):
        parts = _parts(owned.get(one.section.name, {}), f"c{number}")
        sections.append(Section(one.title, one.paragraphs, one.tables, parts))
    if beside:
        sections.append(Section("Beside them", tables=tuple(beside), parts=_parts(owned.get("", {}))))
    return sections


def _parts(drawn: Mapping[str, Figure], prefix: str = "") -> tuple[Part, ...]:
    by_heading = figure_parts(drawn, prefix)
    return tuple(replace(part, heading=heading) for heading, parts in by_heading.items() for part in parts)
