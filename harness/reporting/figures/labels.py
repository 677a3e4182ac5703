"""Names beside the points of a panel, each where it covers least."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

FONT = 7.0  # points
WIDTH, HEIGHT = 0.62, 1.25  # of a character and of a line, in sizes of the font
POINT = 5.0  # points from the middle of a marker to its edge
DISTANCES = (7.0, 15.0, 24.0, 36.0)  # points from a marker to its name
DIRECTIONS = 12
THIN = 1.5  # points from a dashed line to the edge of its room
OUTSIDE = 4.0  # an area outside the panel counts as so much of an area that covers something
JOINED = 10.0  # a line joins a name to its marker from this distance on


@dataclass(frozen=True)
class Label:
    """The name of a point."""

    x: float
    y: float
    text: str
    colour: str


def label_points(figure: Figure, panels: Mapping[Axes, Sequence[Label]]) -> None:
    """Write the names of the points of each panel, clear of bars and dashed lines; call it last."""
    figure.draw_without_rendering()  # for the places of the panels
    scale = figure.dpi / 72
    for axes, labels in panels.items():
        points = [axes.transData.transform((label.x, label.y)) / scale for label in labels]
        taken = [np.array([x - POINT, y - POINT, x + POINT, y + POINT]) for x, y in points]
        for line in axes.lines:
            if line.get_linestyle() == "--":
                taken += _segments(axes.transData.transform(line.get_xydata()) / scale)
        for bars in axes.collections:
            if isinstance(bars, LineCollection):
                for segment in bars.get_segments():
                    taken += _segments(axes.transData.transform(segment) / scale)
        taken += [np.asarray(text.get_window_extent().extents) / scale for text in axes.texts]
        inside = np.asarray(axes.get_window_extent().extents) / scale
        for label, (x, y) in zip(labels, points, strict=True):
            boxes, distances = _places(label.text, x, y)
            covered = _shared(boxes, np.stack(taken)).sum(axis=1)
            outside = _shared(boxes, boxes).diagonal() - _shared(boxes, inside[None])[:, 0]
            best = int(np.argmin(covered + OUTSIDE * outside + distances))
            taken.append(boxes[best])
            _write(axes, label, boxes[best, 0] - x, boxes[best, 1] - y, distances[best])


def _segments(corners: np.ndarray) -> list[np.ndarray]:
    """Return a thin box around each part of a line of horizontal and vertical parts."""
    parts = itertools.pairwise(corners)
    return [np.concatenate([np.minimum(a, b) - THIN, np.maximum(a, b) + THIN]) for a, b in parts]


def _places(text: str, x: float, y: float) -> tuple[np.ndarray, np.ndarray]:
    """Return boxes (left, bottom, right, top) for a name around its point, and the distance of each."""
    half = np.array([WIDTH * FONT * len(text), HEIGHT * FONT]) / 2
    distances = np.repeat(DISTANCES, DIRECTIONS)
    angles = np.tile(2 * math.pi * np.arange(DIRECTIONS) / DIRECTIONS, len(DISTANCES))
    middles = np.array([x, y]) + np.stack([np.cos(angles), np.sin(angles)], axis=1) * (distances[:, None] + half)
    return np.concatenate([middles - half, middles + half], axis=1), distances


def _shared(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the area that each box (N, 4) shares with each other one (M, 4), as (N, M)."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return np.asarray((high - low).clip(min=0).prod(axis=2))


def _write(axes: Axes, label: Label, x: float, y: float, distance: float) -> None:
    line = {"arrowstyle": "-", "color": label.colour, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2}
    text = axes.annotate(
        label.text,
        (label.x, label.y),
        xytext=(x, y),
        textcoords="offset points",
        fontsize=FONT,
        color=label.colour,
        arrowprops=line if distance > JOINED else None,
    )
    text.set_in_layout(False)  # the places of the panels stay
