"""The figures of a report: which there are, for which kind of suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from harness.core.kinds import kind_of
from harness.core.records import Record
from harness.reporting.figures.figure_style import render, style
from harness.reporting.results import plan_lines

if TYPE_CHECKING:
    from harness.planning.plan import Plan

OF_CLAIMS = ("accounting", "singular", "likelihood", "training", "runtime")
"""Figures that a section of a report on claims has."""


def rendered(made: Mapping[str, Figure]) -> dict[str, bytes]:
    """Every figure as PNG and, but for pictures, SVG, by file name."""
    files: dict[str, bytes] = {}
    with style():
        for name, figure in made.items():
            files |= render(name, figure)
    return files


def drawn(plan: Plan, records: Sequence[Record], folder: Path) -> dict[str, Figure]:
    """Every figure of a plan by name; those without content are left out.

    Args:
        plan: the order of layers and data sets.
        records: what was measured.
        folder: where the records lie, with their arrays of samples.
    """
    if plan.sections:
        parts: dict[str, Figure] = {}
        for section in plan.sections:
            part = plan.part(section)
            ids = {trial.id for trial in part.trials}
            own = drawn(part, [record for record in records if record.id in ids], folder)
            parts |= {f"{section.name}-{name}": figure for name, figure in own.items() if name.startswith(OF_CLAIMS)}
        return parts
    with style():
        made = kind_of(plan.kind).figures(plan, records, plan_lines(records, plan), folder)
    return {name: figure for name, figure in made.items() if figure is not None}
