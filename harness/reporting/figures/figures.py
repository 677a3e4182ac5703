"""Find and draw the figures of a report.

A figure is a file in the folder `figures` of its kind, with HEADING, the heading of such figures on the page; ORDER,
their place among the kind's figures; and `figures(results)`, which returns name -> figure or None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules

from matplotlib.figure import Figure

from harness.core.kinds import kind_of
from harness.reporting.figures.figure_style import render, style
from harness.reporting.frame import Results


@dataclass(frozen=True)
class ReportFigure:
    """A figure of a report.

    Attributes:
        name: the name of its files.
        heading: the heading below which it stands on the page.
        drawing: the figure.
    """

    name: str
    heading: str
    drawing: Figure


def drawn(results: Results) -> list[ReportFigure]:
    """Return every figure of a plan; those without content are left out."""
    package = f"{type(kind_of(results.plan.kind)).__module__}.figures"
    found = find_spec(package)
    if found is None:
        return []
    names = (module.name for module in iter_modules(found.submodule_search_locations))
    modules = sorted((import_module(f"{package}.{name}") for name in names), key=lambda module: module.ORDER)
    with style():
        return [
            ReportFigure(name, module.HEADING, figure)
            for module in modules
            for name, figure in module.figures(results).items()
            if figure is not None
        ]


def rendered(figures: Sequence[ReportFigure]) -> dict[str, bytes]:
    """Return the files of the figures: every figure as PNG and, but for pictures, SVG."""
    with style():
        return {name: content for figure in figures for name, content in render(figure.name, figure.drawing).items()}
