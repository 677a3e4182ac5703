"""What the page shows between its head and the list of trials: sections of text, tables, figures and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from harness.reporting.figures.figure_style import slug
from harness.reporting.frame import Results
from harness.reporting.page.page_figures import Drawing, drawing
from harness.reporting.page.page_pictures import Maps, Picture, figure_pictures, learned_pictures, sample_pictures
from harness.reporting.tables.rendering import Table

if TYPE_CHECKING:
    from harness.planning.plan import Plan

HEADINGS = {
    "likelihood": "Likelihood",
    "pareto": "Likelihood against cost",
    "cost": "Time of a layer",
    "training": "Training curves",
    "accounting": "Claimed and true likelihood",
    "singular": "Smallest singular value",
}
FAMILIES = {"runtime-": "Runtime curves", "neighbours-": "Nearest training examples"}
"""The beginning of a figure's name -> the heading below which all such figures stand together."""
SAMPLES = "samples-"

LEARNED = (
    "The first layer under test of at most 1024 entries, with the weights that were evaluated: row i, column j is what "
    "entry j of its input adds to entry i of its output; blue adds, orange subtracts, darker is more (by the square "
    "root, up to the largest entry). A butterfly's factors follow in the order in which they are applied. Of large "
    "matrices each cell shows its largest entry."
)


@dataclass(frozen=True)
class Part:
    """Figures and pictures that belong together.

    Attributes:
        heading: below that of the section; empty for none.
        caption: what is seen.
        drawings: figures as SVG.
        pictures: panels of pixels.
        maps: what layers became.
        large: whether the pictures need room.
    """

    heading: str = ""
    caption: str = ""
    drawings: tuple[Drawing, ...] = ()
    pictures: tuple[Picture, ...] = ()
    maps: tuple[Maps, ...] = ()
    large: bool = False


@dataclass(frozen=True)
class Section:
    """A heading of the page and all below it, in this order.

    Attributes:
        heading: of the section, and its link in the list of sections.
        facts: (term, text) pairs, such as a claim, its test and what was found.
        tables: with their captions and remarks.
        parts: of figures and pictures.
    """

    heading: str
    facts: tuple[tuple[str, str], ...] = ()
    tables: tuple[Table, ...] = ()
    parts: tuple[Part, ...] = ()


def suite_sections(results: Results, tables: Sequence[Table], drawn: Mapping[str, Figure]) -> list[Section]:
    """The sections of a suite: its tables, then its figures; of runtime curves, the figures first.

    Args:
        results: of the suite.
        tables: as in table.md, then those asked for beside it.
        drawn: as `figures.drawn` gives them, by name; they are of no further use afterwards.
    """
    shown = figure_sections(results, drawn)
    whole = Section("Tables", tables=tuple(tables))
    return [*shown, whole] if results.plan.kind == "runtime" else [whole, *shown]


def figure_sections(results: Results, drawn: Mapping[str, Figure]) -> list[Section]:
    """The figures by heading, then for each data set its samples, then what the layers became.

    Args:
        results, drawn: see `suite_sections`.
    """
    by_heading = figure_parts({name: figure for name, figure in drawn.items() if not name.startswith(SAMPLES)})
    pictures = sample_pictures(results)
    for number, column in enumerate(results.plan.columns):
        name = f"{SAMPLES}{slug(column)}"
        if column in pictures:
            part = Part(column, _sample_caption(results.plan, column), pictures=tuple(pictures[column]))
            by_heading.setdefault("Samples", []).append(part)
        elif name in drawn:
            waves = replace(drawing(f"s{number}", drawn[name]), caption="")
            part = Part(column, _sample_caption(results.plan, column), drawings=(waves,))
            by_heading.setdefault("Samples", []).append(part)
    learned = [Part(column, maps=tuple(maps)) for column, maps in learned_pictures(results).items()]
    if learned:
        by_heading["What the layers became"] = [replace(learned[0], caption=LEARNED), *learned[1:]]
    return [Section(heading, parts=tuple(parts)) for heading, parts in by_heading.items()]


def figure_parts(drawn: Mapping[str, Figure], prefix: str = "") -> dict[str, list[Part]]:
    """Figures by heading, those of pixels as pictures, all others as drawings.

    Args:
        drawn: by name.
        prefix: begins every id inside the drawings; where a page shows several plans, each has its own.
    """
    by_heading: dict[str, list[Part]] = {}
    for number, (name, figure) in enumerate(drawn.items()):
        if any(axes.images for axes in figure.axes):
            caption, panels = figure_pictures(figure)
            part = Part("", caption, pictures=panels, large=True)
        else:
            part = Part(drawings=(drawing(f"{prefix}f{number}", figure),))
        by_heading.setdefault(_heading(name), []).append(part)
    return by_heading


def _sample_caption(plan: Plan, column: str) -> str:
    """What the panels of samples show."""
    text = "Held-out data, then samples of the flow with each layer, of the first seed that has any."
    if any(data.permute is not None and data.label == column for trial in plan.trials for data in trial.data_sets):
        text += " The flows see all entries permuted; here they are put back in order."
    return text


def _heading(name: str) -> str:
    """Of a figure by its name."""
    family = next((heading for start, heading in FAMILIES.items() if name.startswith(start)), None)
    return family or HEADINGS.get(name) or name.replace("-", " ").capitalize()
