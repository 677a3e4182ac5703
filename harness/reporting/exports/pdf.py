"""The figures of a run as PDF files for a paper, in pdf/: vectors, with embedded TrueType fonts (Type 42)."""

from __future__ import annotations

from pathlib import Path

from harness.reporting.figures.figure_style import render_pdf
from harness.reporting.figures.figures import image_files
from harness.reporting.report import ReportedResults
from harness.reporting.tables.selection import Selection
from harness.reporting.written import write_files

FOLDER = "pdf"


def write(results: ReportedResults, folder: Path, selection: Selection) -> list[Path]:
    """Write `pdf/<figure>.pdf`; equal records give equal bytes."""
    selection.refuse("pdf")
    files = image_files(results.report.figures_as(render_pdf))
    write_files(folder, {f"{FOLDER}/{name}": content for name, content in files.items()}, (f"{FOLDER}/*.pdf",))
    return [folder / FOLDER]
