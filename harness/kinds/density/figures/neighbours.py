"""Samples of every layer's flow, each above the training example that is nearest to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from harness.core.files import distinct_slugs
from harness.kinds.density.figures.samples import (
    EventPanel,
    arrays_of,
    channels,
    name_panel,
    shades,
    tiled,
    wave_figure,
)
from harness.reporting.figures.figure_style import panels, plain
from harness.reporting.frame import Results

HEADING = "Nearest training examples"
ORDER = 8

ACROSS, DOWN = 8, 3  # pairs of images in a panel
ARRAYS = tuple(f"{name}{part}" for name in ("data", "samples") for part in ("", "_neighbours", "_neighbour_distance"))


def figures(results: Results) -> dict[str, Figure]:
    """Return a figure per data set: held-out events, then samples of each layer, from the first seed that has any."""
    figures, names = {}, distinct_slugs(results.plan.columns)
    for column in results.plan.columns:
        stored = {row: arrays for row, arrays in arrays_of(results, column).items() if set(ARRAYS) <= set(arrays)}
        if not stored:  # or of a version without neighbours
            continue
        blocks = [_block("held-out data", "data", next(iter(stored.values())))]
        blocks += [_block(row, "samples", arrays) for row, arrays in stored.items()]
        images = blocks[0].events.ndim == 4
        figure = image_figure(blocks) if images else wave_figure(blocks, channels(results, column))
        where = "below each" if images else "behind each, in grey,"
        figure.suptitle(plain(f"{column}: {where} the nearest training example"), x=0.01, ha="left")
        figures[f"neighbours-{names[column]}"] = figure
    return figures


def _block(title: str, name: str, arrays: Mapping[str, np.ndarray]) -> EventPanel:
    """Return the events that have a neighbour, with the median distance."""
    near = arrays[f"{name}_neighbours"]
    distance = f"median distance {np.median(arrays[f'{name}_neighbour_distance']):.3g}"
    return EventPanel(title, arrays[name][: len(near)], distance, near)


def image_figure(blocks: Sequence[EventPanel]) -> Figure:
    """Return a panel of pairs for each block."""
    figure, grid = panels(len(blocks), 3.0, 2.9, columns=3)
    top = max(1, int(blocks[0].events.max()))
    for axes, block in zip(grid, blocks, strict=True):
        name_panel(axes, block)
        assert block.near is not None
        mosaic = pair_mosaic(block.events, block.near, top)
        axes.imshow(mosaic, cmap="gray", vmin=0, vmax=1, interpolation="antialiased")
        axes.set_axis_off()
    return figure


def pair_mosaic(images: np.ndarray, near: np.ndarray, top: int) -> np.ndarray:
    """Return up to ACROSS x DOWN images (N, C, H, W) above their neighbours, in [0, 1], with gaps between pairs."""
    count = min(len(images), ACROSS * DOWN)
    height = images.shape[2]
    pad = max(1, height // 16)
    above, below = (shades(part[:count], top) for part in (images, near))
    pairs = np.concatenate([above, np.ones_like(above[:, :, :pad]), below], axis=2)
    return tiled(pairs, min(count, ACROSS), pad, max(2, height // 4))
