"""Write the overview of several suites across their data sets: OUT/across/, beside the report of each suite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from harness.core.errors import UserError
from harness.planning.plan import FILE as PLAN
from harness.reporting.figures.figures import image_files
from harness.reporting.frame import Results, csv_bytes
from harness.reporting.origins import mixtures
from harness.reporting.report import FIGURES, NEEDS, Overview, report_class
from harness.reporting.tables.rendering import escape_markdown, latex_tables, markdown, plain
from harness.reporting.written import write_files

FOLDER = "across"
TITLE = "Across data sets"


def write_overview(folder: Path, runs: Sequence[Results]) -> str | None:
    """Write across.md, across.tex, across.csv and figures/ in a folder, and return the text for a terminal.

    Nothing is written, and None returned, where no kind of suite has several of the runs and an overview of them.

    Raises:
        UserError: the folder is that of a run.
    """
    overviews = []
    for kind in dict.fromkeys(results.plan.kind for results in runs):
        alike = tuple(results for results in runs if results.plan.kind == kind)
        overview = report_class(kind).overview(alike) if len(alike) > 1 else None
        overviews += [] if overview is None else [(alike, overview)]
    if not overviews:
        return None
    if (folder / PLAN).exists():
        raise UserError(
            f"{folder}: holds a run, and the overview across data sets needs this name; choose another --out"
        )
    paragraphs, texts = [f"# {TITLE}"], [TITLE]
    for alike, overview in overviews:
        about = _about(alike)
        pictures = [f"![{figure.heading}](figures/{figure.name}.png)" for figure in overview.figures]
        tables = map(markdown, overview.tables)
        mixed = [f"{text}." for text in mixtures(origin for results in alike for origin in results.origins)]
        paragraphs += [escape_markdown(about), overview.answer.markdown(), *pictures, *tables]
        paragraphs += map(escape_markdown, mixed)
        texts += [about, overview.answer.plain(), *map(plain, overview.tables), *mixed]
    made: list[Overview] = [overview for _, overview in overviews]
    images = image_files([figure for overview in made for figure in overview.figures])
    content = {
        "across.csv": csv_bytes(pd.concat([overview.frame for overview in made], ignore_index=True)),
        "across.md": "\n\n".join([*paragraphs, ""]).encode(),
        "across.tex": (NEEDS + latex_tables([table for overview in made for table in overview.tables]) + "\n").encode(),
    }
    write_files(folder, content | {f"figures/{name}": image for name, image in images.items()}, FIGURES)
    return "\n\n".join(texts)


def _about(runs: Sequence[Results]) -> str:
    """Return the suites, and the rule that makes rows of them one layer."""
    suites = ", ".join(f"{results.plan.suite} ({results.plan.profile})" for results in runs)
    return (
        f"Suites, with their profiles: {suites}. Layers are matched by their labels; their options, the budget and the "
        "tuning are those of each suite, see its report."
    )
