"""index.html: the whole report of a suite on one page that needs nothing beside itself, and no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from harness.records import Record
from harness.reporting.cells import Line, device_text
from harness.reporting.figure_style import slug
from harness.reporting.merge import CONFLICT
from harness.reporting.page_facts import (
    environment_rows,
    rebuild_lines,
    records_summary,
    trial_columns,
    trial_rows,
    without_paths,
)
from harness.reporting.page_figures import Drawing, drawing
from harness.reporting.page_pictures import Maps, Picture, learned_pictures, sample_pictures
from harness.reporting.rendering import Table, one_line
from harness.reporting.tables import status_line
from harness.settings import DensityTrial

if TYPE_CHECKING:
    from harness.planning.plan import Plan

HEADINGS = {
    "likelihood": "Likelihood",
    "cost": "Time of a layer",
    "training": "Training curves",
}
SAMPLES = "samples-"
RUNTIME = "runtime-"


LEARNED = (
    "The first layer under test of at most 1024 entries, with the weights that were evaluated: row i, column j is what "
    "entry j of its input adds to entry i of its output; blue adds, orange subtracts, darker is more (by the square "
    "root, up to the largest entry). A butterfly's factors follow in the order in which they are applied. Of large "
    "matrices each cell shows its largest entry."
)


@dataclass
class Part:
    """Figures and pictures that belong together.

    Attributes:
        heading: below that of the chapter; empty for none.
        caption: what is seen.
        drawings: figures as SVG.
        pictures: panels of pixels.
        maps: what layers became.
    """

    heading: str = ""
    caption: str = ""
    drawings: list[Drawing] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    maps: list[Maps] = field(default_factory=list)


Chapters = dict[str, list[Part]]
"""Heading of a section -> its parts."""


def page(
    plan: Plan,
    records: Sequence[Record],
    lines: Sequence[Line],
    tables: Sequence[Table],
    drawn: Mapping[str, Figure],
    csv: bytes,
    folder: Path,
) -> bytes:
    """The page as bytes of HTML, a function of its arguments and of the arrays in `folder`.

    Everything that comes from a suite or a record is escaped. A content security policy lets the page's own script
    run and no other, and fetch nothing.

    Args:
        plan: what was asked.
        records: what was measured.
        lines: of `results.plan_lines`.
        tables: as in table.md.
        drawn: of `figures.drawn`; they are of no further use afterwards.
        csv: results.csv, to be downloaded.
        folder: where the records lie, with their arrays.
    """
    environment = Environment(
        loader=PackageLoader("harness.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = _template("page.js", environment)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    text = environment.get_template("page.html").render(
        plan=plan,
        question=one_line(plan.question),
        device=device_text(plan.device, lines),
        status=status_line(lines),
        conflicts=[without_paths(f"{one.id}: {one.notes[CONFLICT]}") for one in records if CONFLICT in one.notes],
        tables=[replace(table, notes=tuple(map(without_paths, table.notes))) for table in tables],
        chapters=chapters(plan, records, drawn, folder),
        columns=trial_columns(plan),
        trials=trial_rows(plan, records, lines),
        environment=environment_rows(records),
        commands=rebuild_lines(plan, records),
        downloads=[
            ("results.csv", "a line for each measure of each trial", _data("text/csv", csv)),
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


def chapters(plan: Plan, records: Sequence[Record], drawn: Mapping[str, Figure], folder: Path) -> Chapters:
    """The figures by heading, then for each data set its samples, then what the layers became."""
    made: Chapters = {}
    for name, figure in drawn.items():
        if not name.startswith(SAMPLES):
            made.setdefault(_heading(name), []).append(Part(drawings=[drawing(name, figure)]))
    pictures = sample_pictures(plan, records, folder)
    samples = []
    for column in plan.columns:
        name = f"{SAMPLES}{slug(column)}"
        if column in pictures:
            samples.append(Part(column, _sample_caption(plan, column), pictures=pictures[column]))
        elif name in drawn:
            waves = [replace(drawing(name, drawn[name]), caption="")]
            samples.append(Part(column, _sample_caption(plan, column), drawings=waves))
    learned = learned_pictures(plan, records, folder)
    if samples:
        made["Samples"] = samples
    if learned:
        first, *others = (Part(column, maps=maps) for column, maps in learned.items())
        made["What the layers became"] = [replace(first, caption=LEARNED), *others]
    return made


def _sample_caption(plan: Plan, column: str) -> str:
    """What the panels of samples show."""
    text = "Held-out data, then samples of the flow with each layer, of the first seed that has any."
    trials = [trial for trial in plan.trials if isinstance(trial, DensityTrial) and trial.data.label == column]
    if any(trial.data.permute is not None for trial in trials):
        text += " The flows see all entries permuted; here they are put back in order."
    return text


def _heading(name: str) -> str:
    """Of a figure by its name; the figures of runtime sweeps stand together."""
    if name.startswith(RUNTIME):
        return "Runtime curves"
    return HEADINGS.get(name, name.replace("-", " ").capitalize())


def _template(name: str, environment: Environment) -> str:
    return environment.get_template(name).render()


def _data(kind: str, content: bytes) -> str:
    return f"data:{kind};charset=utf-8;base64,{base64.b64encode(content).decode('ascii')}"
