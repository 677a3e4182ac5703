"""The matrices of trained layers, with their factors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from harness.core.files import distinct_slugs
from harness.core.records import MAP
from harness.kinds.density.figures.samples import arrays_of
from harness.reporting.figures.figure_style import COLOURS, panels, plain
from harness.reporting.frame import Results

HEADING = "Matrices of trained layers"
ORDER = 9

SIGNED = LinearSegmentedColormap.from_list("signed", [COLOURS[1], "white", COLOURS[0]])


def figures(results: Results) -> dict[str, Figure]:
    """Return a figure per data set: the first layer under test of each row as a matrix, then its factors.

    Row i, column j is the weight of input entry j in output entry i: blue if positive, orange if negative, by the
    square root of its magnitude, up to the largest of the panel. A cell of a reduced matrix shows its entry of the
    largest magnitude (see `harness.evaluation.stored_arrays`).
    """
    figures, slugs = {}, distinct_slugs(results.plan.columns)
    for column in results.plan.columns:
        blocks: list[tuple[str, np.ndarray]] = []
        for row, arrays in arrays_of(results, column).items():
            names = [name for name in arrays if name.startswith(MAP)]
            blocks += [(row + name.removeprefix(names[0]).partition(":")[0], arrays[name]) for name in names]
        if blocks:
            figures[f"maps-{slugs[column]}"] = _figure(column, blocks)
    return figures


def _figure(column: str, blocks: Sequence[tuple[str, np.ndarray]]) -> Figure:
    figure, grid = panels(len(blocks), 1.5, 1.8, columns=6)
    for axes, (title, matrix) in zip(grid, blocks, strict=True):
        values = matrix.astype(float)
        largest = float(np.abs(values).max(initial=0))
        shades = np.sign(values) * np.sqrt(np.abs(values) / largest) if largest > 0 else values
        axes.imshow(shades, cmap=SIGNED, vmin=-1, vmax=1, interpolation="nearest")
        axes.set_title(plain(title), fontsize=9)
        axes.set_xlabel(f"up to {largest:.2g}", fontsize=8)
        axes.set_xticks([])
        axes.set_yticks([])
    text = f"{column}: matrix of the first layer under test, then its factors in the order of application"
    figure.suptitle(plain(text), x=0.01, ha="left")
    return figure
