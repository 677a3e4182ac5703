"""The page of a suite of claims: the verdicts, then a section for each claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.kinds.claims.claims import Examined, summary
from harness.reporting.page.page_sections import PageFigure, PageSection, page_figures
from harness.reporting.tables.rendering import Table


def claims_sections(
    examined: Sequence[Examined], files: Mapping[str, bytes], beside: Sequence[Table] = ()
) -> list[PageSection]:
    """Return all verdicts in one table, then for each claim its sentence, test, result, verdict, tables and figures.

    Args:
        examined: the claims.
        files: name -> content of figures; those of a claim begin with its name and a hyphen.
        beside: other tables that the command asked for.
    """
    names = sorted((claim.section.name for claim in examined), key=len, reverse=True)
    owned: dict[str, list[PageFigure]] = {}
    for figure in page_figures(files):
        owner = next((name for name in names if figure.name.startswith(f"{name}-")), "")
        owned.setdefault(owner, []).append(figure)
    sections = [PageSection("Verdicts", tables=(summary(examined),))]
    for claim in examined:
        figures = tuple(owned.get(claim.section.name, ()))
        sections.append(PageSection(claim.title, claim.paragraphs, claim.tables, figures))
    if beside:
        sections.append(PageSection("Beside them", tables=tuple(beside), figures=tuple(owned.get("", ()))))
    return sections
