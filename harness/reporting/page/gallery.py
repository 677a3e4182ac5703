"""A page that links the reports below a folder, each with its question, its answer and a figure."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from harness.core.archive import reading
from harness.core.errors import UserError
from harness.core.files import write_atomically
from harness.core.records import LONGEST_REASON
from harness.core.texts import bounded
from harness.planning.plan import Plan
from harness.reporting.frame import Results
from harness.reporting.page.answer import Finding
from harness.reporting.page.page import rendered_template

PAGE, TEXT = "index.html", "table.md"

SHOWN = ("accounting", "ranking", "likelihood", "runtime", "")
"""Parts of the names of figures, of which a report's first is shown."""

FILES = {PAGE: "page", TEXT: "tables", "results.csv": "numbers", "records.zip": "records"}

MOST = 6  # findings of a report that are shown


@dataclass(frozen=True)
class Entry:
    """One report of the gallery."""

    name: str  # of its folder
    plan: Plan
    findings: tuple[Finding, ...]
    figure: str | None  # the address of a picture
    links: tuple[tuple[str, str], ...]  # (address, text), its page first


def write_gallery(folder: Path) -> Path:
    """Write index.html in a folder that holds the folders of reports, and return it.

    A report whose plan or records cannot be read is named on standard error, and left out.

    Raises:
        UserError: none of the folders has a report that can be read.
    """
    with reading(folder):
        places = sorted(folder.iterdir())
    entries = []
    for place in places:
        try:
            if (place / TEXT).exists():
                entries.append(_entry(place))
        except (OSError, UserError) as error:
            reason = bounded(getattr(error, "strerror", None) or str(error), LONGEST_REASON)
            print(f"left out: {bounded(str(place))}: cannot be read ({reason})", file=sys.stderr)
    if not entries:
        raise UserError(f"{folder}: none of its folders has a {TEXT} and records; give one in which suites were run")
    text = rendered_template("gallery.html", entries=entries, most=MOST, css=rendered_template("page.css"))
    write_atomically(folder / PAGE, text.encode())
    return folder / PAGE


def _entry(folder: Path) -> Entry:
    results = Results.read(folder)
    report = results.report
    findings = () if report.answer is None else report.answer.findings
    links = tuple((quote(f"{folder.name}/{name}"), text) for name, text in FILES.items() if (folder / name).exists())
    return Entry(folder.name, results.plan, findings, next(_figures(folder), None), links)


def _figures(folder: Path) -> Iterator[str]:
    """Yield the addresses of the figures, the one that says most first."""
    pictures = sorted((folder / "figures").glob("*.png"))
    for part in SHOWN:
        yield from (quote(f"{folder.name}/figures/{path.name}") for path in pictures if part in path.stem)
