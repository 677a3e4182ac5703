"""The places of panels, legends and texts in a drawn figure, which a narrow page shows one below another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from harness.reporting.figures.figure_style import not_plain, noted

CSS_PIXELS = 96  # per inch
PAD = 3.0  # CSS pixels around a panel
HALF_LABEL = 7.0  # CSS pixels, of the label of a tick beyond the end of its axis
POINTS = 72  # per inch
MARKER, ABOVE, BELOW = 0.3, 1.0, 0.4  # in sizes of the font of a legend: left of a line; above and below a baseline


@dataclass(frozen=True)
class Box:
    """A rectangle in CSS pixels, from the left upper corner of the figure."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Panel:
    """A panel, and the labels of its vertical axis where another panel of the same row has them."""

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


def parts_of(figure: Figure, images: Mapping[str, bytes]) -> FigureParts:
    """Return the parts of a figure that has been drawn, with `images` as the result."""
    rows: dict[int, list[Axes]] = {}
    for axes in figure.axes:
        place = axes.get_subplotspec()
        if place is not None and (axes.axison or axes.has_data()):
            rows.setdefault(place.rowspan.start, []).append(axes)
    beside = figure.get_supylabel()
    return FigureParts(
        not_plain(figure.get_suptitle()),
        tuple(panel for row in rows.values() for panel in _row(figure, row)),
        tuple(_entries(figure, POINTS if ".svg" in images else figure.dpi)),
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


def _entries(figure: Figure, dots: float) -> list[Box]:
    """Return the entries of all legends, each a handle and its text, as last drawn at `dots` per inch."""
    made = []
    scale = CSS_PIXELS / dots
    height = figure.get_size_inches()[1] * CSS_PIXELS
    for legend in (*figure.legends, *(one for axes in figure.axes if (one := axes.get_legend()) is not None)):
        for text in legend.get_texts():
            x, baseline = text.get_transform().transform(text.get_position()) * scale
            size = float(text.get_fontsize()) * CSS_PIXELS / POINTS
            handle = size * (legend.handlelength + legend.handletextpad + MARKER)
            width = handle + text.get_window_extent().width * scale + 1  # by the renderer of the last drawing
            made.append(_rounded(x - handle, height - baseline - ABOVE * size, width, (ABOVE + BELOW) * size))
    return made


def _box(figure: Figure, extent: Bbox, pad: float = 0.0) -> Box:
    """Return a rectangle of the canvas, padded, inside the figure."""
    scale = CSS_PIXELS / figure.dpi
    width, height = figure.get_size_inches() * CSS_PIXELS
    left, right = max(0.0, extent.x0 * scale - pad), min(width, extent.x1 * scale + pad)
    top, bottom = max(0.0, height - extent.y1 * scale - pad), min(height, height - extent.y0 * scale + pad)
    return _rounded(left, top, right - left, bottom - top)


def _rounded(*numbers: float) -> Box:
    return Box(*(round(float(number), 1) for number in numbers))
