"""The sections of a page between its head and the list of trials: text, tables and figures."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from PIL import Image

from harness.reporting.figures.figure_style import RESOLUTION
from harness.reporting.frame import Results
from harness.reporting.tables.rendering import Table

HEADINGS = {
    "likelihood": "Likelihood",
    "pareto": "Likelihood against cost",
    "cost": "Time of a layer",
    "training": "Training curves",
    "accounting": "Claimed and true likelihood",
    "singular": "Smallest singular value",
    "samples": "Samples",
    "neighbours": "Nearest training examples",
    "maps": "Matrices of trained layers",
    "runtime": "Runtime curves",
}
"""The name of a figure, or its part before the first hyphen -> the heading below which such figures stand."""

CSS_PIXELS = 96  # per inch


@dataclass(frozen=True)
class PageFigure:
    """A figure inside the page: its file as a data: URI.

    Attributes:
        name: the file's, without its ending.
        source: the SVG file, or the PNG file of a figure that has no SVG.
        width: in CSS pixels.
    """

    name: str
    source: str
    width: int

    @property
    def drawn(self) -> bool:
        """Whether the figure is a line drawing, whose colours may be inverted on dark paper."""
        return self.source.startswith("data:image/svg")

    @property
    def alt(self) -> str:
        """The alternative text."""
        return f"Figure {self.name}"


@dataclass(frozen=True)
class PageSection:
    """A heading of the page and all below it, in this order.

    Attributes:
        heading: of the section, and its link in the list of sections.
        facts: (term, text) pairs, such as a claim, its test and what was found.
        tables: with their captions and remarks.
        figures: below the tables.
    """

    heading: str
    facts: tuple[tuple[str, str], ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[PageFigure, ...] = ()


def suite_sections(results: Results, tables: Sequence[Table], files: Mapping[str, bytes]) -> list[PageSection]:
    """Return the sections of a suite: its tables, then its figures by heading; runtime curves come before their tables.

    Args:
        results: of the suite.
        tables: as in table.md.
        files: name -> content of the files in figures/.
    """
    by_heading: dict[str, list[PageFigure]] = {}
    for figure in page_figures(files):
        by_heading.setdefault(_heading(figure.name), []).append(figure)
    shown = [PageSection(heading, figures=tuple(figures)) for heading, figures in by_heading.items()]
    whole = PageSection("Tables", tables=tuple(tables))
    return [*shown, whole] if results.plan.kind == "runtime" else [whole, *shown]


def page_figures(files: Mapping[str, bytes]) -> list[PageFigure]:
    """Return every figure once, in the order of the files; each has a PNG file, and an SVG file if it is a drawing."""
    made = []
    for name in _stems(files):
        png, svg = files[f"{name}.png"], files.get(f"{name}.svg")
        with Image.open(io.BytesIO(png)) as image:
            width = round(image.width * CSS_PIXELS / RESOLUTION)
        if svg is not None:
            source = f"data:image/svg+xml,{quote(svg, safe=_SAFE)}"
        else:
            source = f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
        made.append(PageFigure(name, source, width))
    return made


_SAFE = " ,:;=()/!*+@$?[]{}|~^`"  # needs no escape in a data: URI in double quotes


def _stems(files: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name.rpartition(".")[0] for name in files))


def _heading(name: str) -> str:
    return HEADINGS.get(name) or HEADINGS.get(name.partition("-")[0]) or name.replace("-", " ").capitalize()
