"""The places of panels, legends and texts in a drawn figure, from which a narrow page arranges them one below another."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from harness.reporting.figures.figure_style import noted, not_plain

CSS_PIXELS = 96  # per inch
PAD = 3.0  # CSS pixels around a panel
HALF_LABEL = 7.0  # CSS pixels, of the label of a tick beyond the end of its axis
ENTRY_HEIGHT = 1.7  # of an entry of a legend, in sizes of its font


@dataclass(frozen=True)
class Box:
    """A rectangle in CSS pixels, from the left upper corner of the figure."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Panel:
    """A panel, and the labels of its vertical axis where they stand beside another panel of the same row."""

    box: Box
    labels: Box | None = None

    @property
    def width(self) -> float:
        """The width with the labels."""
        return self.box.width + (0.0 if self.labels is None else self.labels.width)


@dataclass(frozen=True)
class FigureParts:
    """The parts of a figure."""

    title: str
    panels: tuple[Panel, ...]
    entries: tuple[Box, ...]  # of its legends
    notes: tuple[str, ...]  # sentences below the panels


def parts_of(figure: Figure) -> FigureParts:
    """Return the parts of a figure that has been drawn."""
    rows: dict[int, list[Axes]] = {}
    for axes in figure.axes:
        place = axes.get_subplotspec()
        if place is not None and (axes.axison or axes.has_data()):
            rows.setdefault(place.rowspan.start, []).append(axes)
    beside = figure.get_supylabel()
    return FigureParts(
        not_plain(figure.get_suptitle()),
        tuple(panel for row in rows.values() for panel in _row(figure, row)),
        tuple(_entries(figure)),
        (*([f"vertical axes: {not_plain(beside)}"] if beside else []), *noted(figure)),
    )


def _row(figure: Figure, row: list[Axes]) -> list[Panel]:
    """Return the panels of one row, of equal height, so that their axes are in line where they stand side by side."""
    extents = [axes.get_tightbbox() or axes.get_window_extent() for axes in row]
    low, high = min(extent.y0 for extent in extents), max(extent.y1 for extent in extents)
    first, outside = row[0], extents[0].x0
    labels = None
    if first.axison and first.yaxis.get_tick_params().get("labelleft", True):
        frame = first.get_window_extent()
        beyond = HALF_LABEL * figure.dpi / CSS_PIXELS
        labels = _box(figure, Bbox.from_extents(outside, frame.y0 - beyond, frame.x0, frame.y1 + beyond))
    return [
        Panel(
            _box(figure, Bbox.from_extents(extent.x0, low, extent.x1, high), PAD),
            None if axes is first or axes.yaxis.get_tick_params().get("labelleft", True) else labels,
        )
        for axes, extent in zip(row, extents, strict=True)
    ]


def _entries(figure: Figure) -> list[Box]:
    """Return the entries of all legends: each a handle and its text."""
    made = []
    figure.draw_without_rendering()  # a legend is placed when it is drawn, and the last time was in points for an SVG
    for legend in (*figure.legends, *(one for axes in figure.axes if (one := axes.get_legend()) is not None)):
        for text in legend.get_texts():
            extent, size = text.get_window_extent(), text.get_size() * figure.dpi / 72
            left = extent.x0 - size * (legend.handlelength + legend.handletextpad + 0.2)
            middle, half = (extent.y0 + extent.y1) / 2, ENTRY_HEIGHT * size / 2
            made.append(_box(figure, Bbox.from_extents(left, middle - half, extent.x1 + 1, middle + half)))
    return made


def _box(figure: Figure, extent: Bbox, pad: float = 0.0) -> Box:
    """Return a rectangle of the canvas, padded, inside the figure."""
    scale = CSS_PIXELS / figure.dpi
    width, height = figure.get_size_inches() * CSS_PIXELS
    left, right = max(0.0, extent.x0 * scale - pad), min(width, extent.x1 * scale + pad)
    top, bottom = max(0.0, height - extent.y1 * scale - pad), min(height, height - extent.y0 * scale + pad)
    return Box(*(round(float(value), 1) for value in (left, top, right - left, bottom - top)))
