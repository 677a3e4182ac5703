"""The figure of the supports of butterfly factors agrees with their definition."""

import numpy as np
import pytest
import torch
from matplotlib.patches import PathPatch

from layers.butterfly import Butterfly


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("figures/butterfly_supports.py")


def drawn(axes):
    """Return the matrix of blue cells of a panel."""
    size = round(axes.get_xlim()[1])
    matrix = np.zeros((size, size), dtype=int)
    (cells,) = (patch for patch in axes.patches if isinstance(patch, PathPatch))
    for outline in cells.get_path().to_polygons():
        assert np.ptp(outline, axis=0).tolist() == [1, 1]
        column, row = outline.min(axis=0).astype(int)
        matrix[row, column] += 1
    return matrix


def test_draws_the_factors_of_the_paper(script):
    layers = [Butterfly((1, 16)), Butterfly((3, 8), block_size=3)]
    panels = {axes.get_title(): axes for axes in script.support_figure(layers).axes if axes.axison}
    supports = {name: support for layer in layers for name, support in script.factor_supports(layer).items()}
    assert panels.keys() == supports.keys() and len(panels) == 7
    for name, support in supports.items():
        assert np.array_equal(drawn(panels[name]), support.astype(int))
        assert panels[name].get_ylim() == (len(support), 0)  # row 0 on top, as in a matrix


@pytest.mark.parametrize(("shape", "width", "levels"), [((1, 16), 1, 4), ((3, 8), 3, 3), ((2, 6), 2, 1)])
def test_supports_equal_those_of_the_layer(script, shape, width, levels):
    """A layer of one factor with weights away from the identity is non-zero exactly where its picture is blue."""
    supports = script.factor_supports(Butterfly(shape, block_size=width, levels=levels))
    assert len(supports) == levels
    for level, support in enumerate(supports.values(), start=1):
        layer = Butterfly(shape, block_size=width, levels=[level], initialisation="rotation")
        assert torch.equal(layer.dense() != 0, torch.from_numpy(support))
