"""Find and draw the figures of a report.

A figure is a file in the folder `figures` of its kind, with HEADING, the heading of such figures on the page; ORDER,
their place among the kind's figures, of which those of order 0 stand above the tables of the page; and
`figures(results)`, which returns them by name.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules

from matplotlib.figure import Figure

from harness.core.kinds import kind_of
from harness.core.provenance.machine import usable_cores
from harness.reporting.figures.figure_style import render, style
from harness.reporting.frame import Results


@dataclass(frozen=True)
class ReportFigure:
    """A figure of a report."""

    name: str  # of its files
    heading: str  # on the page
    drawing: Figure
    leading: bool = False  # above the tables of the page


def drawn(results: Results) -> list[ReportFigure]:
    """Return every figure of a plan."""
    folder = kind_of(results.plan.kind).part("figures")
    files = [] if folder is None else iter_modules(folder.__path__, f"{folder.__name__}.")
    modules = sorted((import_module(file.name) for file in files), key=lambda module: module.ORDER)
    with style():
        return [
            ReportFigure(name, module.HEADING, figure, module.ORDER == 0)
            for module in modules
            for name, figure in module.figures(results).items()
        ]


def rendered(figures: Sequence[ReportFigure]) -> dict[str, bytes]:
    """Return the files of the figures: every figure as PNG and, but for pictures, SVG; made on all cores of Linux.

    On other systems a forked process may not use the system's libraries.
    """
    processes = min(usable_cores(), len(figures)) if sys.platform == "linux" else 1
    if processes < 2:
        parts = [_files(figure) for figure in figures]
    else:
        fork = multiprocessing.get_context("fork")  # as figures cannot be pickled
        with ProcessPoolExecutor(processes, fork, _begin, (figures,)) as pool:
            parts = list(pool.map(_begun_files, range(len(figures))))
    return {name: content for files in parts for name, content in files.items()}


_begun: list[ReportFigure] = []  # the figures of `rendered`, in the processes that it starts


def _begin(figures: Sequence[ReportFigure]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes, and this one's parent reports it
    _begun.extend(figures)


def _begun_files(number: int) -> dict[str, bytes]:
    return _files(_begun[number])


def _files(figure: ReportFigure) -> dict[str, bytes]:
    with style():
        return render(figure.name, figure.drawing)
