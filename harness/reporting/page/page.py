"""index.html: the whole report of a suite on one page that needs no network, and links the numbers beside it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.core.archive import FILE as ARCHIVE
from harness.core.files import slug
from harness.reporting.figures.figures import ReportFigure
from harness.reporting.frame import TABLE, Results
from harness.reporting.page.answer import Answer, Finding
from harness.reporting.page.page_facts import (
    TRIAL_COLUMNS,
    environment_rows,
    rebuild_lines,
    trial_rows,
    without_paths,
)
from harness.reporting.tables.cells import device_text
from harness.reporting.tables.rendering import Table

FILES = {
    TABLE: "a line for each measured case of each trial",
    ARCHIVE: "plan and records: python -m harness report records.zip --out DIR makes the report and CSV files again",
}
LEAD = re.compile(r"^(.{,600}[.;]|.*?[.;]|.*)(?: (.*))?$")  # the sentences of a caption that fit into five lines
RESERVED = ("answer", "trials", "origin", "numbers", "theme", "menu")  # ids in the template of the page

_ENVIRONMENT = Environment(
    loader=PackageLoader("harness.reporting"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters.update(without_paths=without_paths, lead=lambda caption: LEAD.findall(caption)[0])


@dataclass(frozen=True)
class PageSection:
    """A heading of the page and its content, in this order."""

    heading: str
    facts: tuple[tuple[str, str], ...] = ()  # (term, text), such as the test of a claim
    tables: tuple[Table, ...] = ()
    figures: tuple[ReportFigure, ...] = ()
    verdict: Finding | None = None  # beside the heading
    folded: bool = False


def digest_of(script: str) -> str:
    """Return the digest of a script by which a content security policy permits it."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def rendered_template(name: str, **values: Any) -> str:
    """Return a template with these values in it."""
    return _ENVIRONMENT.get_template(name).render(**values)


def page(
    results: Results,
    sections: Sequence[PageSection],
    files: Mapping[str, str],
    answer: Answer | None = None,
    figures: Sequence[ReportFigure] = (),
) -> bytes:
    """Return the page as bytes of HTML, a function of its arguments alone.

    It links the `files` beside it, name -> description. Of the `figures`, the one that the answer names is shown with
    it, and not again in an open section.

    Everything that comes from a suite or a record is escaped. A content security policy permits one script, that of
    the template, and no requests.
    """
    plan, records = results.plan, list(results.records.values())
    names = () if answer is None else answer.figures
    front = [figure for name in names for figure in figures if figure.name.startswith(name)][:1]
    sections = _shown(sections, front)
    made = anchors(sections)
    trials = trial_rows(results)
    script = rendered_template("page.js")
    text = rendered_template(
        "page.html",
        plan=plan,
        titled=plan.titled,
        device=device_text(plan.device, results.frame),
        status=results.status_line,
        warnings=results.warnings,
        sections=sections,
        anchors=made,
        answer=answer,
        places={section.heading: anchor for section, anchor in zip(sections, made, strict=True)},
        front=front,
        audited=any(trial.steps for trial in plan.trials),
        columns=(*TRIAL_COLUMNS, "remarks"),
        trials=trials,
        unlisted=len(plan.trials) - len(trials),
        environment=environment_rows(records),
        commands=rebuild_lines(plan, records),
        files=files,
        css=rendered_template("page.css"),
        script=script,
        digest=digest_of(script),
    )
    return text.encode()


def anchors(sections: Sequence[PageSection]) -> list[str]:
    """Return the id of each section: its heading, with a number where that is taken."""
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


def _shown(sections: Sequence[PageSection], front: Sequence[ReportFigure]) -> list[PageSection]:
    """Return the sections that have something to show; open ones lack the figures that stand with the answer."""
    made = []
    for section in sections:
        figures = tuple(one for one in section.figures if section.folded or one not in front)
        if figures or section.tables or section.facts or not section.figures:
            made.append(replace(section, figures=figures))
    return made
