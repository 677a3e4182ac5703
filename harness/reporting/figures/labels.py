"""Names beside the points of a panel, each where it covers least."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox

FONT = 7.0  # points
WIDTH, HEIGHT = 0.62, 1.25  # of a character and of a line, in sizes of the font
POINT = 5.0  # points from the middle of a marker to its edge
DISTANCES = (7.0, 15.0, 24.0, 36.0)  # points from a marker to its name
DIRECTIONS = 12
JOINED = 10.0  # a line joins a name to its marker from this distance on


@dataclass(frozen=True)
class Label:
    """The name of a point."""

    x: float
    y: float
    text: str
    colour: str


def label_points(figure: Figure, panels: Mapping[Axes, Sequence[Label]]) -> None:
    """Write the names of the points of each panel; the figure has all else that takes room."""
    figure.draw_without_rendering()  # for the places of the panels
    scale = figure.dpi / 72
    for axes, labels in panels.items():
        points = [axes.transData.transform((label.x, label.y)) / scale for label in labels]
        taken = [Bbox.from_bounds(x - POINT, y - POINT, 2 * POINT, 2 * POINT) for x, y in points]
        taken += [Bbox(text.get_window_extent().get_points() / scale) for text in axes.texts]
        inside = Bbox(axes.get_window_extent().get_points() / scale)
        for label, (x, y) in zip(labels, points, strict=True):
            best = min(_places(label.text, x, y), key=lambda place: _cost(place[0], taken, inside) + place[1])
            taken.append(best[0])
            _write(axes, label, best[0].x0 - x, best[0].y0 - y, best[1])


def _places(text: str, x: float, y: float) -> Iterator[tuple[Bbox, float]]:
    """Yield boxes for a name around its point, each with its distance."""
    width, height = WIDTH * FONT * len(text), HEIGHT * FONT
    for distance in DISTANCES:
        for number in range(DIRECTIONS):
            angle = 2 * math.pi * number / DIRECTIONS
            middle_x = x + math.cos(angle) * (distance + width / 2)
            middle_y = y + math.sin(angle) * (distance + height / 2)
            yield Bbox.from_bounds(middle_x - width / 2, middle_y - height / 2, width, height), distance


def _cost(box: Bbox, taken: Sequence[Bbox], inside: Bbox) -> float:
    """Return the area that a box covers of others, and four times that outside the panel."""
    covered = sum(shared.width * shared.height for other in taken if (shared := Bbox.intersection(box, other)))
    within = Bbox.intersection(box, inside)
    outside = box.width * box.height - (within.width * within.height if within else 0)
    return float(covered + 4 * outside)


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
    text.set_path_effects([withStroke(linewidth=2, foreground="white")])
    text.set_in_layout(False)  # the places of the panels stay
