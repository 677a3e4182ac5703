"""index.html: the whole report of a suite on one page that needs nothing beside itself, and no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.reporting.compare.merge import CONFLICT
from harness.reporting.figures.figure_style import slug
from harness.reporting.frame import TABLE, Results, csv_bytes
from harness.reporting.page.page_facts import (
    environment_rows,
    rebuild_lines,
    records_summary,
    trial_columns,
    trial_rows,
    without_paths,
)
from harness.reporting.page.page_sections import PageSection
from harness.reporting.tables.cells import device_text
from harness.reporting.tables.rendering import Table, one_line

RESERVED = ("trials", "origin", "numbers", "theme")  # ids of the page's own


def page(results: Results, sections: Sequence[PageSection]) -> bytes:
    """Return the page as bytes of HTML, a function of its arguments alone.

    Everything that comes from a suite or a record is escaped. A content security policy lets the page's own script
    run and no other, and fetch nothing.

    Args:
        results: of the suite; their table can be downloaded as results.csv.
        sections: of `page_sections.suite_sections`, or one per claim.
    """
    environment = Environment(
        loader=PackageLoader("harness.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    plan, frame, records = results.plan, results.table, list(results.records.values())
    frame = frame.assign(reason=frame["reason"].map(without_paths, na_action="ignore"))
    script = _template("page.js", environment)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    text = environment.get_template("page.html").render(
        plan=plan,
        question=one_line(plan.question),
        device=device_text(plan.device, results.frame),
        status=results.status_line,
        conflicts=[without_paths(f"{one.id}: {one.notes[CONFLICT]}") for one in records if CONFLICT in one.notes],
        sections=[replace(section, tables=tuple(map(_without_paths, section.tables))) for section in sections],
        anchors=anchors(sections),
        audited=any(trial.steps for trial in plan.trials),
        columns=(*trial_columns(plan), "remarks"),
        trials=trial_rows(results),
        environment=environment_rows(records),
        commands=rebuild_lines(plan, records),
        downloads=[
            (TABLE, "a line for each measure of each trial", _text_data("text/csv", csv_bytes(frame))),
            (
                "records.json",
                "training curves, audits, notes and times",
                _data("application/json", records_summary(plan, records)),
            ),
        ],
        css=_template("page.css", environment),
        script=script,
        digest=digest,
    )
    return text.encode()


def anchors(sections: Sequence[PageSection]) -> list[str]:
    """The id of each section: its heading, with a number where that is taken."""
    taken = set(RESERVED)
    made = []
    for section in sections:
        name = slug(section.heading) or "section"
        number = 1
        while (anchor := name if number == 1 else f"{name}-{number}") in taken:
            number += 1
        taken.add(anchor)
        made.append(anchor)
    return made


def _without_paths(table: Table) -> Table:
    rows = tuple(tuple(map(without_paths, row)) for row in table.rows)
    return replace(table, caption=without_paths(table.caption), rows=rows, notes=tuple(map(without_paths, table.notes)))


def _template(name: str, environment: Environment) -> str:
    return environment.get_template(name).render()


def _data(kind: str, content: bytes) -> str:
    return f"data:{kind};charset=utf-8;base64,{base64.b64encode(content).decode('ascii')}"


def _text_data(kind: str, content: bytes) -> str:
    """Of numbers and few other signs, percent-encoding is shorter than base64."""
    return f"data:{kind};charset=utf-8,{quote(content, safe=',:;=()/!*+@$')}"
