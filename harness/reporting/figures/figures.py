"""Draw the figures of a report."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from harness.core.kinds import kind_of
from harness.reporting.figures.figure_style import render, style
from harness.reporting.frame import Results

OF_CLAIMS = ("accounting", "singular", "likelihood", "training", "runtime")
"""Figures that a section of a report on claims has."""


def rendered(made: Mapping[str, Figure]) -> dict[str, bytes]:
    """Return every figure as PNG and, but for pictures, SVG, by file name."""
    files: dict[str, bytes] = {}
    with style():
        for name, figure in made.items():
            files |= render(name, figure)
    return files


def drawn(results: Results) -> dict[str, Figure]:
    """Return every figure of a plan by name; those without content are left out."""
    if results.plan.sections:
        return {
            f"{section.name}-{name}": figure
            for section, part in zip(results.plan.sections, results.parts, strict=True)
            for name, figure in drawn(part).items()
            if name.startswith(OF_CLAIMS)
        }
    with style():
        made = kind_of(results.plan.kind).figures(results)
    return {name: figure for name, figure in made.items() if figure is not None}
