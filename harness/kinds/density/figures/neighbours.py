"""Samples of every layer's flow, each above the training example that is nearest to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from harness.core.files import distinct_slugs
from harness.kinds.density.figures.samples import WAVES, arrays_of, draw_wave, shades, tiled, wave_axes
from harness.reporting.figures.figure_style import COLOURS, INK, panels, plain
from harness.reporting.frame import Results

HEADING = "Nearest training examples"
ORDER = 8

ACROSS, DOWN = 8, 3  # pairs of images in a panel
ARRAYS = tuple(f"{name}{part}" for name in ("data", "samples") for part in ("", "_neighbours", "_neighbour_distance"))

Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Events (N, *shape), their nearest training examples, likewise, and the distances (N,)."""


def figures(results: Results) -> dict[str, Figure]:
    """Return a figure per data set: held-out events, then samples of each layer, from the first seed that has any."""
    figures, names = {}, distinct_slugs(results.plan.columns)
    for column in results.plan.columns:
        by_row = {row: pairs for row, arrays in arrays_of(results, column).items() if (pairs := pairs_of(arrays))}
        if not by_row:
            continue
        first = next(iter(by_row.values()))
        blocks = [("held-out data", first[0]), *((row, pairs[1]) for row, pairs in by_row.items())]
        images = blocks[0][1][0].ndim == 4
        figure = (image_figure if images else wave_figure)(blocks)
        where = "below each" if images else "behind each, in grey,"
        figure.suptitle(
            plain(f"{column}: {where} the nearest training example; median distance in parentheses"), x=0.01, ha="left"
        )
        figures[f"neighbours-{names[column]}"] = figure
    return figures


def pairs_of(arrays: Mapping[str, np.ndarray]) -> tuple[Pairs, Pairs] | None:
    """Return (held-out, samples) with their neighbours, as a trial stored them; None where it stored none."""
    if not set(ARRAYS) <= set(arrays):  # of a version without
        return None
    data, data_near, data_far, samples, samples_near, samples_far = (arrays[name] for name in ARRAYS)
    return (data[: len(data_near)], data_near, data_far), (samples[: len(samples_near)], samples_near, samples_far)


def _title(name: str, distances: np.ndarray) -> str:
    return plain(f"{name} ({np.median(distances):.3g})")


def image_figure(blocks: Sequence[tuple[str, Pairs]]) -> Figure:
    """Return a panel of pairs for each block."""
    figure, grid = panels(len(blocks), 3.0, 2.7, columns=3)
    top = max(1, int(blocks[0][1][0].max()))
    for axes, (name, (images, near, distances)) in zip(grid, blocks, strict=True):
        axes.set_title(_title(name, distances), fontsize=9)
        axes.imshow(pair_mosaic(images, near, top), cmap="gray", vmin=0, vmax=1, interpolation="antialiased")
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


def wave_figure(blocks: Sequence[tuple[str, Pairs]]) -> Figure:
    """Return a panel for each block: sequences (N, C, T) in colour before their neighbours, in the data's range."""
    figure, grid = panels(len(blocks), 2.6, 2.6, share_y=True, columns=3)
    data = blocks[0][1][0].astype(float)
    low = data.min(axis=(0, 2), keepdims=True)
    span = np.maximum(data.max(axis=(0, 2), keepdims=True) - low, 1e-12)
    for axes, (name, (waves, near, distances)) in zip(grid, blocks, strict=True):
        axes.set_title(_title(name, distances), fontsize=9)
        for number in range(min(WAVES, len(waves))):
            for channel in range(data.shape[1]):
                for values, colour, width in ((near, INK, 2.0), (waves, COLOURS[channel % len(COLOURS)], 1.0)):
                    line = ((values - low) / span)[number, channel]
                    opacity = 0.3 if values is near else 1.0
                    draw_wave(axes, line, number, color=colour, linewidth=width, alpha=opacity)
        wave_axes(axes)
    return figure
