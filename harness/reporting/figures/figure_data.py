"""The numbers that a figure shows, read from what is drawn: any figure has them without code of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.category import StrCategoryLocator
from matplotlib.collections import Collection, LineCollection, PathCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from harness.reporting.frame import csv_bytes

TEXTS = ("panel", "x_axis", "y_axis", "series", "x_label", "y_label")
NUMBERS = ("x", "y", "x_low", "x_high", "y_low", "y_high")
"""The columns: of a point, with the ends of its interval or of the band at its x."""

UNMARKED = ("None", "none", "", " ", None)

Point = dict[str, Any]
Names = dict[tuple[str, Any], str]
"""(Colour, marker) -> the name that a legend gives to lines and points of this look; marker None: of this colour."""


def csv_files(figure: Figure) -> dict[str, bytes]:
    """Return the numbers of a figure as ".csv"; nothing of one that shows pixels."""
    if any(axes.images for axes in figure.axes):
        return {}
    return {".csv": csv_bytes(figure_data(figure))}


def figure_data(figure: Figure) -> pd.DataFrame:
    """Return a row for each point that a figure shows, in the order in which they are drawn.

    `series` is the label of what is drawn or, without one, that of its colour and marker in a legend. `x_label` and
    `y_label` are the labels at the nearest ticks of an axis whose ticks have texts, such as the names of layers. A line
    across a panel has one number, x or y.
    """
    names = _names([*figure.legends, *(legend for axes in figure.axes if (legend := axes.get_legend()) is not None)])
    rows = []
    for axes in figure.axes:
        labels = {
            "panel": axes.get_title(loc="left") or axes.get_title(),
            "x_axis": axes.get_xlabel(),
            "y_axis": axes.get_ylabel() or figure.get_supylabel(),
        }
        places = {"x": _ticks(axes.xaxis), "y": _ticks(axes.yaxis)}
        for point in _points(axes, names):
            near = {f"{side}_label": _nearest(places[side], point.get(side)) for side in places}
            rows.append(labels | near | point)
    frame = pd.DataFrame(rows, columns=[*TEXTS, *NUMBERS])
    frame = frame.astype(dict.fromkeys(TEXTS, "string") | dict.fromkeys(NUMBERS, "Float64"))
    for name in TEXTS:
        frame[name] = frame[name].str.replace(r"\$", "$", regex=False)  # see `figure_style.plain`
    return frame


def _points(axes: Axes, names: Names) -> Iterator[Point]:
    """Yield the points of a panel: with error bars, in bars, on lines, and in collections."""
    drawn: set[int] = set()  # ids of artists that are parts of a container
    for container in axes.containers:
        drawn |= {id(child) for child in container.get_children()}
        if isinstance(container, ErrorbarContainer):
            yield from _with_intervals(container, names)
        elif isinstance(container, BarContainer):
            name = _name(container.get_label(), names, to_hex(container.patches[0].get_facecolor()), None)
            for bar in container.patches:
                x, y = bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height()
                yield {"series": name, "x": x, "y": y}
    for line in axes.lines:
        if id(line) not in drawn:
            yield from _on_line(axes, line, names)
    for collection in axes.collections:
        if id(collection) not in drawn:
            yield from _in_collection(collection, names)


def _with_intervals(container: ErrorbarContainer, names: Names) -> Iterator[Point]:
    line, _, bars = container.lines
    points: list[Point] = []
    if line is not None:
        name = _name(container.get_label(), names, to_hex(line.get_color()), line.get_marker())
        points = [{"series": name, "x": x, "y": y} for x, y in np.asarray(line.get_xydata()).tolist()]
    sides = [side for side, there in (("x", container.has_xerr), ("y", container.has_yerr)) if there]
    for side, collection in zip(sides, bars, strict=True):
        column = "xy".index(side)
        for point, segment in zip(points, collection.get_segments(), strict=True):
            if len(segment):
                ends = segment[:, column]
                point |= {f"{side}_low": min(ends), f"{side}_high": max(ends)}
    yield from points


def _on_line(axes: Axes, line: Line2D, names: Names) -> Iterator[Point]:
    name = _name(line.get_label(), names, to_hex(line.get_color()), line.get_marker())
    numbers = np.asarray(line.get_xydata()).tolist()
    across, along = axes.get_yaxis_transform("grid"), axes.get_xaxis_transform("grid")
    if line.get_transform() in (across, along):  # of axhline and axvline, whose other numbers are parts of the panel
        x, y = numbers[0]
        yield {"series": name} | ({"y": y} if line.get_transform() == across else {"x": x})
        return
    for x, y in numbers:
        yield {"series": name, "x": x, "y": y}


def _in_collection(collection: Collection, names: Names) -> Iterator[Point]:
    """Yield the points of a scatter or of several lines, and the ends of a band at each x."""
    faces: Any = collection.get_edgecolor() if isinstance(collection, LineCollection) else collection.get_facecolor()
    name = _name(collection.get_label(), names, to_hex(faces[0]) if len(faces) else "", None)
    if isinstance(collection, LineCollection):
        for segment in collection.get_segments():
            yield from ({"series": name, "x": x, "y": y} for x, y in segment)
    elif isinstance(collection, PathCollection):
        yield from ({"series": name, "x": x, "y": y} for x, y in np.ma.getdata(collection.get_offsets()))
    elif isinstance(collection, PolyCollection):
        for path in collection.get_paths():
            ends: dict[float, list[float]] = {}
            for x, y in np.asarray(path.vertices, dtype=float).tolist():
                ends.setdefault(x, []).append(y)
            yield from ({"series": name, "x": x, "y_low": min(ys), "y_high": max(ys)} for x, ys in ends.items())


def _names(legends: Sequence[Legend]) -> Names:
    names: Names = {}
    for legend in legends:
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            if isinstance(handle, Line2D):
                colour = to_hex(handle.get_color())
                names.setdefault((colour, None), text.get_text())
                if handle.get_marker() not in UNMARKED:
                    names.setdefault((colour, handle.get_marker()), text.get_text())
    return names


def _name(label: object, names: Names, colour: str, marker: object) -> str:
    """Return the label of an artist, or the name that a legend gives to its look; "" without either."""
    if label and not str(label).startswith("_"):
        return str(label)
    return names.get((colour, marker), names.get((colour, None), ""))


def _ticks(axis: Axis) -> dict[float, str]:
    """Return place -> text of the ticks of an axis that has fixed texts; empty for one with numbers."""
    if not isinstance(axis.get_major_locator(), (FixedLocator, StrCategoryLocator)):
        return {}
    texts = [label.get_text() for label in axis.get_majorticklabels()]
    if all(text.replace(".", "", 1).isdecimal() for text in texts):
        return {}
    return dict(zip(map(float, axis.get_majorticklocs()), texts, strict=False))


def _nearest(places: dict[float, str], value: float | None) -> str | None:
    if not places or value is None or not math.isfinite(value):
        return None
    place = min(places, key=lambda place: abs(place - value))
    return places[place] if abs(place - value) <= 0.5 else None
