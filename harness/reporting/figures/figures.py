"""Find and draw the figures of a report.

A figure is a file in the folder `figures` of its kind, with HEADING, the heading of such figures on the page; ORDER,
their place among the kind's figures, of which those of order 0 stand above the tables of the page; and
`figures(results)`, which returns them by name.
"""

from __future__ import annotations

import base64
import gzip
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from matplotlib.figure import Figure
from PIL import Image

from harness.core.discovery import names_in, sibling
from harness.core.settings import Progress, silent
from harness.planning.suite_model import SUITES
from harness.reporting.figures.figure_style import render, style
from harness.reporting.frame import Results

CSS_PIXELS = 96  # per inch


@dataclass(frozen=True)
class ReportFigure:
    """A figure of a report."""

    name: str  # of its files
    heading: str  # on the page
    images: dict[str, bytes]  # suffix -> content, of its `Form`
    leading: bool = False  # above the tables of the page

    @property
    def drawn(self) -> bool:
        """True for a drawing, whose colours may be inverted on dark paper; false for one that shows pixels."""
        return ".svg" in self.images

    @property
    def content(self) -> str:
        """The figure in base64 for a page: the SVG file, compressed by gzip, or the PNG file of one without it."""
        content = gzip.compress(self.images[".svg"], mtime=0) if self.drawn else self.images[".png"]
        return base64.b64encode(content).decode()

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in CSS pixels."""
        with Image.open(io.BytesIO(self.images[".png"])) as image:
            width, height = (round(number * CSS_PIXELS / round(image.info["dpi"][0])) for number in image.size)
        return width, height


Form = Callable[[Figure], dict[str, bytes]]
"""Function from a figure to the content of its files by suffix, such as `figure_style.render`."""


def drawn(
    parts: Sequence[Results], names: tuple[str, ...] = ("",), form: Form = render, progress: Progress = silent
) -> list[list[ReportFigure]]:
    """Return the figures of each part whose names begin with one of `names`."""
    modules = [_modules(results) for results in parts]
    total, done = sum(map(len, modules)), 0
    figures: list[list[ReportFigure]] = []
    for results, of_part in zip(parts, modules, strict=True):
        figures.append([])
        for module in of_part:
            figures[-1] += _figures(results, module, names, form)
            done += 1
            progress(done / total, f"figures, {done} of {total} files")
    return figures


def image_files(figures: Sequence[ReportFigure]) -> dict[str, bytes]:
    """Return the files of the figures by name."""
    return {f"{figure.name}{suffix}": image for figure in figures for suffix, image in figure.images.items()}


def _modules(results: Results) -> list[ModuleType]:
    folder = sibling(SUITES[results.plan.kind], "figures")
    if folder is None:
        return []
    files = (import_module(f"{folder.__name__}.{name}") for name in names_in(folder))
    return sorted(files, key=lambda module: module.ORDER)


def _figures(results: Results, module: ModuleType, names: tuple[str, ...], form: Form) -> list[ReportFigure]:
    with style():
        made = []
        for name, figure in module.figures(results).items():
            if name.startswith(names):
                made.append(ReportFigure(name, module.HEADING, form(figure), module.ORDER == 0))
        return made
