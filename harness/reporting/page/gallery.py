"""A page that links the reports below a folder, each with its question, its answer and a figure."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from harness.core.archive import reading
from harness.core.errors import UserError
from harness.core.files import write_atomically
from harness.core.records import LONGEST_REASON
from harness.core.texts import bounded, visible
from harness.planning.plan import Plan
from harness.reporting.page.answer import Finding
from harness.reporting.page.page import digest_of, rendered_template
from harness.reporting.report import ReportedResults
from harness.reporting.tables.cells import device_text

PAGE, TEXT = "index.html", "table.md"

ASKED = ("which_layer", "tuned", "mimic", "claims", "runtime", "libraries", "capacity")
"""The suites that are asked for most, in this order; others follow by their names."""

SHOWN = ("accounting", "ranking", "likelihood", "runtime", "")
"""Parts of the names of figures, of which a report's first is shown."""

FILES = {PAGE: "page", TEXT: "tables", "results.csv": "numbers", "records.zip": "records"}

MOST = 1  # findings of a report that are shown before the others are unfolded


@dataclass(frozen=True)
class GalleryEntry:
    """One report of the gallery."""

    name: str  # of its folder
    plan: Plan
    device: str
    findings: tuple[Finding, ...]
    figure: tuple[str, str] | None  # (name, address)
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
    first = {suite: number for number, suite in enumerate(ASKED)}
    entries.sort(key=lambda entry: (entry.plan.suite, -len(entry.plan.trials), entry.name))
    entries.sort(key=lambda entry: first.get(entry.plan.suite, len(ASKED)))
    filters = {
        name: list(dict.fromkeys(getattr(entry.plan, name) for entry in entries)) for name in ("kind", "profile")
    }
    script = rendered_template("gallery.js")
    text = rendered_template(
        "gallery.html",
        entries=entries,
        filters=filters,
        most=MOST,
        css=rendered_template("page.css"),
        script=script,
        digest=digest_of(script),
    )
    write_atomically(folder / PAGE, text.encode())
    return folder / PAGE


def _entry(folder: Path) -> GalleryEntry:
    results = ReportedResults.read(folder)
    report = results.report
    findings = () if report.answer is None else report.answer.findings
    links = tuple((_address(folder / name), text) for name, text in FILES.items() if (folder / name).exists())
    device = device_text(results.plan.device, results.frame)
    return GalleryEntry(visible(folder.name), results.plan, device, findings, _figure(folder), links)


def _address(path: Path, parts: int = 2) -> str:
    """Return the last parts of a path as an address; its bytes, as a name may be no UTF-8."""
    return quote(os.fsencode("/".join(path.parts[-parts:])))


def _figure(folder: Path) -> tuple[str, str] | None:
    """Return name and address of the first figure in the order of `SHOWN`; None without one."""
    files = sorted((folder / "figures").glob("*.png"))
    shown = (path for part in SHOWN for path in files if part in path.stem)
    return next(((path.stem, _address(path, 3)) for path in shown), None)
