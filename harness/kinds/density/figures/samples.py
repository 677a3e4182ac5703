"""Samples of every layer's flow beside the data that it was trained on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.core.errors import UserError
from harness.core.files import distinct_slugs
from harness.core.third_party import is_third_party
from harness.kinds.density.likelihoods import UNITS, density
from harness.kinds.density.trial import DensityTrial
from harness.reporting.figures.figure_style import COLOURS, INK, panels, plain
from harness.reporting.frame import Results, Row, rows_of

HEADING = "Samples"
ORDER = 7

GRID = 4  # images along a side of a panel, where there are as many
WAVES = 3  # sequences in a panel


def figures(results: Results) -> dict[str, Figure]:
    """Return a figure per data set: the data, then samples of each layer, from the first seed that has any."""
    figures, names = {}, distinct_slugs(results.plan.columns)
    for column in results.plan.columns:
        blocks = sample_blocks(results, column)
        if not blocks:
            continue
        figure = image_figure(blocks) if blocks[0].events.ndim == 4 else wave_figure(blocks, channels(results, column))
        figure.suptitle(plain(f"{column}: held-out data, and samples of the flow with each layer"), x=0.01, ha="left")
        figures[f"samples-{names[column]}"] = figure
    return figures


@dataclass(frozen=True)
class EventPanel:
    """The events of one panel."""

    title: str
    events: np.ndarray
    value: str = ""  # below the title


def stored(results: Results, column: str) -> Iterator[tuple[Row, dict[str, np.ndarray]]]:
    """Yield for each row its first trial that has arrays, as a row of `density`, with the arrays."""
    frame = density(results)
    stored_by = [name for name, record in results.records.items() if record.arrays is not None]
    frame = frame[(frame["dataset"] == column) & frame["id"].isin(stored_by)]
    first: dict[str, tuple[Row, dict[str, np.ndarray]]] = {}
    for line in rows_of(frame):
        if line.layer not in first and (arrays := _stored_arrays(results, line.id)) is not None:
            first[line.layer] = line, arrays
    yield from (first[row] for row in results.plan.rows if row in first)


def _stored_arrays(results: Results, trial: str) -> dict[str, np.ndarray] | None:
    """Return the arrays of a trial; raise UserError if they are not data and as many samples of one event shape."""
    arrays = results.arrays(trial)
    if arrays is None:
        return None
    data, samples = arrays.get("data", np.empty(0)), arrays.get("samples", np.empty(0))
    if data.shape != samples.shape or data.ndim not in (3, 4) or not data.size or not np.isfinite(data).all():
        path = results.folder / "records" / str(results.records[trial].arrays)
        raise UserError(f"{path}: not the samples of a flow beside its data; run the suite again")
    return arrays


def sample_blocks(results: Results, column: str) -> list[EventPanel]:
    """Return the data, then the samples of each row, with the test likelihood of their trial; empty without any."""
    blocks = list[EventPanel]()
    for line, arrays in stored(results, column):
        if not blocks:
            blocks.append(EventPanel("data", arrays["data"]))
        seed = ""
        if len(results.plan.seeds) > 1 or not pd.isna(line.repetition):
            seed = f", seed {line.seed}" if pd.isna(line.repetition) else f", repetition {line.repetition}"
        value = line.failure if pd.isna(line.value) else f"{line.value:.3f} {UNITS[line.measure]}{seed}"
        blocks.append(EventPanel(line.layer, arrays["samples"], value))
    return blocks


def channels(results: Results, column: str) -> list[str]:
    """Return the names of the channels of a data set of the project; empty where unknown."""
    data = next(
        trial.data for trial in results.plan.trials if isinstance(trial, DensityTrial) and trial.data.label == column
    )
    if is_third_party(data.name):
        return []  # a report runs no third-party code
    from harness.datasets import find_dataset

    try:
        return list(find_dataset(data.name).channels(dict(data.options)))
    except UserError:  # a data set of another version
        return []


def image_figure(blocks: Sequence[EventPanel]) -> Figure:
    """Return a square of images for each block, (N, C, H, W); one or three channels are shown."""
    figure, grid = panels(len(blocks), 2.3, 2.8, columns=4)
    top = max(1, int(blocks[0].events.max()))
    for axes, block in zip(grid, blocks, strict=True):
        name_panel(axes, block)
        axes.imshow(mosaic(block.events, top), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_axis_off()
    return figure


def name_panel(axes: Axes, block: EventPanel) -> None:
    """Write the name of a block above its panel, and its value below the name."""
    axes.set_title(f"{plain(block.title)}\n", fontsize=9)
    look: dict[str, Any] = {"xytext": (0, 5), "textcoords": "offset points", "fontsize": 8, "color": INK}
    axes.annotate(plain(block.value), (0, 1), xycoords="axes fraction", **look)


def mosaic(images: np.ndarray, top: int) -> np.ndarray:
    """Return the first images (N, C, H, W) as a square, at most GRID x GRID, in [0, 1], with white lines between.

    Their values are up to `top`; of two channels, or more than three, the first is shown.
    """
    side = max(1, min(GRID, math.isqrt(len(images))))
    shown = images[: side * side] if images.shape[1] in (1, 3) else images[: side * side, :1]
    _, channels, height, width = shown.shape
    pad = max(1, height // 16)
    whole = np.ones((side * (height + pad) - pad, side * (width + pad) - pad, channels))
    for number, image in enumerate(np.clip(shown.astype(float) / top, 0, 1)):
        y, x = number // side * (height + pad), number % side * (width + pad)
        whole[y : y + height, x : x + width] = image.transpose(1, 2, 0)
    return whole[:, :, 0] if channels == 1 else whole


def wave_figure(blocks: Sequence[EventPanel], names: Sequence[str] = ()) -> Figure:
    """Return a panel of WAVES sequences, one above the other, for each block, (N, C, T), with names of the channels."""
    figure, grid = panels(len(blocks), 2.6, 2.8, share_y=True, columns=3)
    data = blocks[0].events.astype(float)
    low = data.min(axis=(0, 2), keepdims=True)
    span = data.max(axis=(0, 2), keepdims=True) - low
    span[span == 0] = 1
    for axes, block in zip(grid, blocks, strict=True):
        name_panel(axes, block)
        for number, wave in enumerate((block.events[:WAVES] - low[0]) / span[0]):
            for channel, values in enumerate(np.clip(wave, -0.15, 1.15)):  # one far outside would cross others
                axes.plot(values - 1.35 * number, color=COLOURS[channel % len(COLOURS)], linewidth=1.0)
        axes.set_xlabel("time step")
        axes.set_ylim(-1.35 * (WAVES - 1) - 0.2, 1.2)
        axes.set_yticks([])
        axes.grid(visible=False)
    for axes in grid[::3]:
        axes.set_ylabel("scaled to the data's range")
    labels = list(names) or [f"channel {number}" for number in range(1, data.shape[1] + 1)]
    handles = [Line2D([], [], color=COLOURS[number % len(COLOURS)]) for number in range(len(labels))]
    figure.legend(handles, labels, loc="outside right center")
    return figure
