"""Samples of every layer's flow beside the data that it was trained on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.reporting.figures.figure_style import COLOURS, panels, plain, slug
from harness.reporting.frame import Results

HEADING = "Samples"
ORDER = 7

GRID = 10  # images along a side of a panel, where there are as many
WAVES = 3  # sequences in a panel


def figures(results: Results) -> dict[str, Figure]:
    """Return a figure per data set: the data, then samples of each layer, from the first seed that has any."""
    figures = {}
    for column in results.plan.columns:
        blocks = sample_blocks(arrays_of(results, column))
        if not blocks:
            continue
        figure = (image_figure if blocks[0][1].ndim == 4 else wave_figure)(blocks)
        figure.suptitle(plain(f"{column}: held-out data, and samples of the flow with each layer"), x=0.01, ha="left")
        figures[f"samples-{slug(column)}"] = figure
    return figures


def arrays_of(results: Results, column: str) -> dict[str, dict[str, np.ndarray]]:
    """Return the stored arrays of a data set's trials, by row in plan order, each of the first seed that has any."""
    frame = results.of_kind("density")
    found: dict[str, dict[str, np.ndarray]] = {}
    for row in results.plan.rows:
        trials = frame.loc[(frame["dataset"] == column) & (frame["layer"] == row), "id"]
        arrays = next((arrays for trial in trials if (arrays := results.arrays(trial)) is not None), None)
        if arrays is not None:
            found[row] = arrays
    return found


def sample_blocks(found: Mapping[str, Mapping[str, np.ndarray]]) -> list[tuple[str, np.ndarray]]:
    """Return ("data", values), then (row, samples) of each row; empty where there is none."""
    rows = list(found)
    return [("data", found[rows[0]]["data"]), *((row, found[row]["samples"]) for row in rows)] if rows else []


def image_figure(blocks: Sequence[tuple[str, np.ndarray]]) -> Figure:
    """Return a square of images for each block (title, (N, C, H, W)); one or three channels are shown."""
    figure, grid = panels(len(blocks), 2.3, 2.6, columns=4)
    top = max(1, int(blocks[0][1].max()))
    for axes, (title, images) in zip(grid, blocks, strict=True):
        axes.set_title(plain(title), fontsize=9)
        axes.imshow(mosaic(images, top), cmap="gray", vmin=0, vmax=1, interpolation="antialiased")
        axes.set_axis_off()
    return figure


def mosaic(images: np.ndarray, top: int) -> np.ndarray:
    """Return the first images (N, C, H, W) as a square in [0, 1], at most GRID x GRID, with white lines between."""
    side = max(1, min(GRID, math.isqrt(len(images))))
    pad = max(1, images.shape[2] // 16)
    return tiled(shades(images[: side * side], top), side, pad, pad)


def shades(images: np.ndarray, top: int) -> np.ndarray:
    """Return images (N, C, H, W) of values up to `top` in [0, 1]; of two channels or many the first."""
    return np.clip((images if images.shape[1] in (1, 3) else images[:, :1]).astype(float) / top, 0, 1)


def tiled(images: np.ndarray, across: int, pad: int, gap: int) -> np.ndarray:
    """Return images (N, C, H, W) as one (H, W) or (H, W, 3), white between columns (`pad`) and rows (`gap`)."""
    count, channels, height, width = images.shape
    down = -(-count // across)
    whole = np.ones((down * (height + gap) - gap, across * (width + pad) - pad, channels))
    for number, image in enumerate(images):
        y, x = number // across * (height + gap), number % across * (width + pad)
        whole[y : y + height, x : x + width] = image.transpose(1, 2, 0)
    return whole[:, :, 0] if channels == 1 else whole


def wave_figure(blocks: Sequence[tuple[str, np.ndarray]]) -> Figure:
    """Return a panel of WAVES sequences, one above the other, for each block (title, (N, C, T))."""
    figure, grid = panels(len(blocks), 2.6, 2.6, share_y=True, columns=3)
    data = blocks[0][1].astype(float)
    low = data.min(axis=(0, 2), keepdims=True)
    span = np.maximum(data.max(axis=(0, 2), keepdims=True) - low, 1)
    for axes, (title, waves) in zip(grid, blocks, strict=True):
        axes.set_title(plain(title), fontsize=9)
        draw_waves(axes, (waves[:WAVES] - low) / span)
        axes.set_xlabel("time step")
    for axes in grid[::3]:
        axes.set_ylabel("scaled to the data's range")
    names = [f"channel {number}" for number in range(1, data.shape[1] + 1)]
    figure.legend(grid[0].get_lines()[: len(names)], names, loc="outside right center")
    return figure


def draw_waves(axes: Axes, waves: np.ndarray) -> None:
    """Draw sequences (N, C, T) in units of the data's range, the first on top, a colour per channel."""
    for number, wave in enumerate(waves):
        for channel, values in enumerate(wave):
            # A sample far outside the range would cross its neighbours.
            shifted = np.clip(values, -0.15, 1.15) - 1.35 * number
            axes.plot(shifted, color=COLOURS[channel % len(COLOURS)], linewidth=1)
    axes.set_ylim(-1.35 * (WAVES - 1) - 0.2, 1.2)
    axes.set_yticks([])
    axes.grid(visible=False)
