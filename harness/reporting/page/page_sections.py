"""The sections of a page between its head and the list of trials: text, tables and figures."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from PIL import Image

from harness.reporting.figures.figure_style import RESOLUTION
from harness.reporting.figures.figures import ReportFigure
from harness.reporting.tables.rendering import Table

CSS_PIXELS = 96  # per inch


@dataclass(frozen=True)
class PageFigure:
    """A figure inside the page: its file as a data: URI.

    Attributes:
        name: the file's, without its ending.
        heading: the heading below which it stands.
        source: the SVG file, or the PNG file of a figure that has no SVG.
        width: in CSS pixels.
    """

    name: str
    heading: str
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


def page_figures(figures: Sequence[ReportFigure], files: Mapping[str, bytes]) -> list[PageFigure]:
    """Return the figures for the page; `files` holds a PNG file of each, and an SVG file of each drawing."""
    made = []
    for figure in figures:
        png, svg = files[f"{figure.name}.png"], files.get(f"{figure.name}.svg")
        with Image.open(io.BytesIO(png)) as image:
            width = round(image.width * CSS_PIXELS / RESOLUTION)
        if svg is not None:
            source = f"data:image/svg+xml,{quote(svg, safe=_SAFE)}"
        else:
            source = f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
        made.append(PageFigure(figure.name, figure.heading, source, width))
    return made


_SAFE = " ,:;=()/!*+@$?[]{}|~^`"  # needs no escape in a data: URI in double quotes
