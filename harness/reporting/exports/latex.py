"""The tables of a report for a paper: latex/<table>.tex, each to be read by \\input, with booktabs and graphicx."""

from __future__ import annotations

from pathlib import Path

from harness.core.files import distinct_slugs
from harness.reporting.report import NEEDS, ReportedResults
from harness.reporting.tables.rendering import latex
from harness.reporting.tables.selection import Selection
from harness.reporting.written import write_files

FOLDER = "latex"


def write(results: ReportedResults, folder: Path, selection: Selection) -> list[Path]:
    """Write a file for each table that has something of what is chosen."""
    tables = selection.of(results.report.tables)
    names = distinct_slugs([table.name for table in tables])
    head = f"{NEEDS}% {results.suite_line}\n"
    content = {f"{FOLDER}/{names[table.name]}.tex": f"{head}{latex(table)}\n".encode() for table in tables}
    write_files(folder, content, (f"{FOLDER}/*.tex",))
    return [folder / name for name in content]
