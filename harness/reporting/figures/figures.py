"""Find and draw the figures of a report.

A figure is a file in the folder `figures` of its kind, with HEADING, the heading of such figures on the page; ORDER,
their place among the kind's figures, of which those of order 0 stand above the tables of the page; and
`figures(results)`, which returns them by name.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from matplotlib.figure import Figure

from harness.core.discovery import names_in, sibling
from harness.core.isolation.descendants import end_with_parent
from harness.core.provenance.machine import usable_cores
from harness.core.settings import Progress, silent
from harness.planning.suite_model import SUITES
from harness.reporting.figures.figure_style import render, style
from harness.reporting.figures.parts import FigureParts, parts_of
from harness.reporting.frame import Results


@dataclass(frozen=True)
class ReportFigure:
    """A figure of a report."""

    name: str  # of its files
    heading: str  # on the page
    images: dict[str, bytes]  # suffix -> content, of its `Form`
    leading: bool = False  # above the tables of the page
    parts: FigureParts | None = None  # of one that was drawn as an image


Form = Callable[[Figure], dict[str, bytes]]
"""Function from a figure to the content of its files by suffix, such as `figure_style.render`."""


def drawn(
    parts: Sequence[Results], names: tuple[str, ...] = ("",), form: Form = render, progress: Progress = silent
) -> list[list[ReportFigure]]:
    """Return the figures of each part whose names begin with one of `names`; made on all cores of Linux.

    On other systems a forked process may not use the system's libraries; and beside other threads, such as those of a
    notebook, it may wait for ever for a lock that one of them held.
    """
    jobs = [(number, module) for number, results in enumerate(parts) for module in _modules(results)]
    forks = sys.platform == "linux" and threading.active_count() == 1 and _have_semaphores()
    processes = min(usable_cores(), len(jobs)) if forks else 1
    made: list[list[ReportFigure]] = []

    def collect(files: Iterable[list[ReportFigure]]) -> None:
        for figures in files:
            made.append(figures)
            progress(len(made) / len(jobs), f"figures, {len(made)} of {len(jobs)} files")

    if processes < 2:
        collect(_figures(parts[number], module, names, form) for number, module in jobs)
    else:
        fork = multiprocessing.get_context("fork")  # so that results and their caches need no pickling
        with ProcessPoolExecutor(processes, fork, _begin, (os.getpid(), parts, names, form)) as pool:
            collect(pool.map(_begun_figures, [(number, module.__name__) for number, module in jobs]))
    figures: list[list[ReportFigure]] = [[] for _ in parts]
    for (number, _), of_job in zip(jobs, made, strict=True):
        figures[number] += of_job
    return figures


def _have_semaphores() -> bool:
    """Return whether the system gives semaphores, which processes share; it has none where /dev/shm is read-only."""
    try:
        multiprocessing.get_context("fork").Lock()
    except OSError:
        return False
    return True


def has_figure(results: Results, name: str) -> bool:
    """Return whether the file of this name in `figures` has a figure of the results; nothing is drawn."""
    with style():
        return any(module.figures(results) for module in _modules(results) if module.__name__.endswith(f".{name}"))


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
                images = form(figure)
                parts = parts_of(figure, images) if ".png" in images else None  # only what was drawn has places
                made.append(ReportFigure(name, module.HEADING, images, module.ORDER == 0, parts))
        return made


_begun: list[tuple[Sequence[Results], tuple[str, ...], Form]] = []
"""The arguments of `drawn`, in the processes that it starts."""


def _begin(parent: int, parts: Sequence[Results], names: tuple[str, ...], form: Form) -> None:
    end_with_parent(parent)  # one that is blocked in the pipe of its pool would stay for ever
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes, and this one's parent reports it
    _begun.append((parts, names, form))


def _begun_figures(job: tuple[int, str]) -> list[ReportFigure]:
    ((parts, names, form),) = _begun
    return _figures(parts[job[0]], import_module(job[1]), names, form)
