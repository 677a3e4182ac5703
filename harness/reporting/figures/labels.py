"""Names beside the points of a panel, each where it covers least."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

FONT = 7.0  # points
WIDTH, HEIGHT = 0.62, 1.25  # of a character and of a line, in sizes of the font
POINT = 5.0  # points from the middle of a marker to its edge
AROUND = np.array(  # cosine and sine of a direction from a marker, and the distance of its name in points
    [(math.cos(turn), math.sin(turn), d) for d in (7, 15, 24, 36) for turn in np.arange(12) * math.pi / 6]
)
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
    figure.draw_without_rendering()  # for the places of the panels, which stay
    figure.set_layout_engine("none")
    scale = figure.dpi / 72
    for axes, labels in panels.items():
        points = [axes.transData.transform((label.x, label.y)) / scale for label in labels]
        lines = [line.get_xydata() for line in axes.lines if line.get_linestyle() == "--"]
        lines += [bar for bars in axes.collections if isinstance(bars, LineCollection) for bar in bars.get_segments()]
        ends = [(point, point, POINT) for point in points]
        ends += [(*part, THIN) for line in lines for part in pairwise(axes.transData.transform(line) / scale)]
        taken = [np.concatenate([np.minimum(a, b) - room, np.maximum(a, b) + room]) for a, b, room in ends]
        taken += [np.asarray(text.get_window_extent().extents) / scale for text in axes.texts]
        inside = np.asarray(axes.get_window_extent().extents) / scale
        for label, point in zip(labels, points, strict=True):
            half = np.array([WIDTH * FONT * len(label.text), HEIGHT * FONT]) / 2
            middles = point + AROUND[:, :2] * (AROUND[:, 2:] + half)
            boxes = np.concatenate([middles - half, middles + half], axis=1)
            outside = 4 * half.prod() - _shared(boxes, inside[None])[:, 0]
            cost = _shared(boxes, np.stack(taken)).sum(axis=1) + OUTSIDE * outside + AROUND[:, 2]
            best = int(np.argmin(cost))
            taken.append(boxes[best])
            line = {"arrowstyle": "-", "color": label.colour, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2}
            axes.annotate(
                label.text,
                (label.x, label.y),
                xytext=tuple(boxes[best, :2] - point),
                textcoords="offset points",
                fontsize=FONT,
                color=label.colour,
                arrowprops=line if AROUND[best, 2] > JOINED else None,
            )


def _shared(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the area that each box (left, bottom, right, top) (N, 4) shares with each other one (M, 4), as (N, M)."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return np.asarray((high - low).clip(min=0).prod(axis=2))
