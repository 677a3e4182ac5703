"""Folders of runs, their reports, and the exit code that their trials give."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.archive import StoredRecords, archive_of, reading
from harness.core.errors import UserError
from harness.core.texts import bounded
from harness.execution.agenda import Entry
from harness.execution.folder import writing
from harness.planning.plan import FILE, Plan

if TYPE_CHECKING:
    from harness.reporting.frame import Results

MERGED = Path("reports/merged")
"""Folder below which the results of merged runs and of archives are written, in a folder named after the suite."""


def run_folders(folder: Path) -> list[Path]:
    """Return the folder or archive if it holds a run, else the runs in the folder; raise a UserError without any.

    Folders in the folder that cannot be read are named on standard error.
    """
    with reading(folder):
        if archive_of(folder) is not None or (folder / FILE).is_file():
            return [folder]
        if not folder.is_dir():
            raise UserError(
                f"{folder}: no such folder or archive; give the folder of a run, OUT/<suite>, or its archive"
            )
        places = sorted(folder.iterdir())
    inner = []
    for place in places:
        try:
            inner += [place] if (place / FILE).is_file() else []
        except OSError as error:
            print(f"left out: {bounded(str(place))}: cannot be read ({error.strerror})", file=sys.stderr)
    if not inner:
        raise UserError(f"{folder}: no {FILE} in it or in its folders, so no suite was run here; give OUT/<suite>")
    return inner


def exit_code(plan: Plan, entries: Iterable[Entry]) -> int:
    """Return 0 if every trial counts as ok, else 1."""
    return 0 if all(entry.trial.accepts(entry.state, plan.unsupported) for entry in entries) else 1


def print_strays(plan: Plan, folder: Path, stored: StoredRecords | None = None) -> None:
    """Name the records in a folder that belong to another suite, or to no trial and cannot be read."""
    from harness.planning.plan import stray_records

    for line in stray_records(plan, folder, stored):
        print(line)


def silenced() -> contextlib.AbstractContextManager[object]:
    """Return a context in which nothing is printed on standard output."""
    return contextlib.redirect_stdout(io.StringIO())


def report_folder(
    plan: Plan,
    folder: Path,
    stored: StoredRecords,
    at: Sequence[Any] = (),
    archive: bool = False,
) -> Results:
    """Write the report of a folder, and an archive if asked to, print its table, and return the results."""
    from harness.reporting.frame import Results
    from harness.reporting.report import write_report

    with writing(folder):
        results = Results.of_stored(plan, stored, folder / "records")
        written = write_report(folder, at, archive, results)
    print(f"\n{written.text}")
    print(f"in {folder}: {', '.join(written.files)}")
    return results
