"""Find and draw the figures of a report.

A figure is a file in the folder `figures` of its kind, with HEADING, the heading of such figures on the page; ORDER,
their place among the kind's figures; and `figures(results)`, which returns them by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules

from matplotlib.figure import Figure

from harness.core.kinds import kind_of
from harness.reporting.figures.figure_style import render, style
from harness.reporting.frame import Results


@dataclass(frozen=True)
class ReportFigure:
    """A figure of a report."""

    name: str  # of its files
    heading: str  # on the page
    drawing: Figure


def drawn(results: Results) -> list[ReportFigure]:
    """Return every figure of a plan."""
    folder = kind_of(results.plan.kind).part("figures")
    files = [] if folder is None else iter_modules(folder.__path__, f"{folder.__name__}.")
    modules = sorted((import_module(file.name) for file in files), key=lambda module: module.ORDER)
    with style():
        return [
            ReportFigure(name, module.HEADING, figure)
            for module in modules
            for name, figure in module.figures(results).items()
        ]


def rendered(figures: Sequence[ReportFigure]) -> dict[str, bytes]:
    """Return the files of the figures: every figure as PNG and, but for pictures, SVG."""
    with style():
        return {name: content for figure in figures for name, content in render(figure.name, figure.drawing).items()}
