"""Draw butterfly factors, their free entries in blue, as ButterflyFlow (Meng et al., ICML 2022) does.

`python docs/figures/butterfly_supports.py` writes butterfly-supports.svg and .png beside this file.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline

from harness.reporting.figures.figure_style import PALE, panels, render, style
from layers.butterfly import Butterfly

BLUE = "#0072B2"


def factor_supports(layer: Butterfly) -> dict[str, np.ndarray]:
    """Return the factors of a butterfly, by name, as boolean (D, D) matrices that are true where an entry is free.

    The name is B(i, D), block-wise B(i, D, C). A level that returns is listed once; a factor of a partition's part is
    as large as the part.
    """
    drawn = copy.deepcopy(layer)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in drawn.parameters():  # so that no free entry is 0
            parameter.normal_(generator=generator)
    return {name: matrix.bool().numpy() for name, matrix in drawn.factors()}


def support_figure(layers: Sequence[Butterfly], columns: int = 4) -> Figure:
    """Draw one panel per factor of the layers, in the order of application: free entries blue, zeros white."""
    supports = {name: support for layer in layers for name, support in factor_supports(layer).items()}
    figure, grid = panels(len(supports), 2.0, 2.2, columns=columns)
    for axes, (name, support) in zip(grid, supports.items(), strict=True):
        size = len(support)
        corners = np.argwhere(support)[:, None, ::-1] + np.array([(0, 0), (1, 0), (1, 1), (0, 1)])
        cells = Outline.make_compound_path_from_polys(corners.astype(float))
        axes.add_patch(PathPatch(cells, facecolor=BLUE, linewidth=0))
        axes.set(title=name, xlim=(0, size), ylim=(size, 0), aspect="equal", xticks=[], yticks=[])
        lines = range(1, size)
        axes.vlines(lines, 0, size, color=PALE, linewidth=0.4)
        axes.hlines(lines, 0, size, color=PALE, linewidth=0.4)
        axes.spines[["top", "right"]].set_visible(True)
    return figure


def write_supports(folder: Path) -> None:
    """Write the paper's two figures in one, B(i, 16) and B(i, 24, 3), into a folder."""
    with style():
        images = render(support_figure([Butterfly((1, 16)), Butterfly((3, 8), block_size=3)]))
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, image in images.items():
        (folder / f"butterfly-supports{suffix}").write_bytes(image)


if __name__ == "__main__":
    write_supports(Path(__file__).parent)
