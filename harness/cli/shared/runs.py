"""Arguments that several commands share, folders of runs, and what commands print of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.archive import archive_of, reading
from harness.core.errors import UserError
from harness.planning.plan import FILE

if TYPE_CHECKING:
    from harness.reporting.report import ReportedResults


def keywords(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a command as the keyword arguments of its function in `harness`."""
    return {name: value for name, value in vars(args).items() if name not in ("command", "execute")}


def add_suite(parser: argparse.ArgumentParser) -> None:
    """Add the argument SUITE."""
    parser.add_argument("suite", metavar="SUITE", help="a suite file, or the name of a packaged suite")


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Add the argument DIR, for the run folders or archives that `run_folders` finds."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="OUT/<suite>, a folder of such folders, or an archive")


def run_folders(folder: Path) -> list[Path]:
    """Return the folder or archive if it holds a run, else the runs in the folder; raise a UserError without any."""
    with reading(folder):
        if archive_of(folder) is not None or (folder / FILE).is_file():
            return [folder]
        if not folder.is_dir():
            raise UserError(
                f"{folder}: no such folder or archive; give the folder of a run, OUT/<suite>, or its archive"
            )
        inner = [place for place in sorted(folder.iterdir()) if (place / FILE).is_file()]
    if not inner:
        raise UserError(f"{folder}: no {FILE} in it or in its folders, so no suite was run here; give OUT/<suite>")
    return inner


def print_report(results: ReportedResults, at: Sequence[str] = ()) -> None:
    """Print the tables of a report that has been written, and the folder."""
    report = results.report
    print(f"\n{report.plain(map(report.table_at, dict.fromkeys(at)))}")
    print(f"in {results.folder}: index.html, table.md, table.tex, results.csv")
