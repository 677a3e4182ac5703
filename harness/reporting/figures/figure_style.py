"""The style of all figures, the look of each row in them, and their rendering: equal figures give equal bytes."""

from __future__ import annotations

import functools
import io
import itertools
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from harness.core.texts import formless

if TYPE_CHECKING:
    from harness.planning.plan import Plan

INK = "#333333"
PALE = "#d9d9d9"

# Okabe & Ito's palette without its yellow, whose seven colours people with any common colour vision tell apart; then
# colours as far as possible, in CIELAB, from all before them.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#332288", "#7A9A01", "#661100"),
    *("#9C755F", "#FF7F7F", "#882255", "#9467bd", "#70C1B3", "#5A5A5A", "#228833", "#A0522D", "#BB5566", "#C44E9F"),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

ROW_HEIGHT = 0.36  # inches, of a layer on a vertical axis
NOTE_LINE, NOTE_CHARACTERS = 0.15, 15  # inches: height of a line of notes; characters in an inch
LEGEND_LINE, LEGEND_COLUMN = 0.19, 1.8  # inches: height of an entry, width of a column

DRAWING, PIXELS = 96, 160  # dots per inch of PNG files; a page shows drawings as SVG

STYLE: dict[str, Any] = {
    "figure.dpi": 100,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so figures look alike everywhere
    "font.size": 9,
    "figure.titlesize": 10,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.edgecolor": "#999999",
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "svg.fonttype": "path",  # a browser without the font would set text wider, and over its neighbours
    "svg.hashsalt": "invertbench",  # ids of SVG elements are random without it
    "path.simplify": True,
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
}


@dataclass(frozen=True)
class Look:
    """The look of a row."""

    colour: str
    marker: str


def looks(plan: Plan) -> dict[str, Look]:
    """Return the look of each row: rows of one layer share its colour, and differ in their markers."""
    layers = {layer.row: layer.layer for trial in plan.trials for layer in trial.layers_under_test}
    families = list(dict.fromkeys(layers.get(row, row) for row in plan.rows))
    members: Counter[str] = Counter()
    chosen = {}
    for row in plan.rows:
        family = layers.get(row, row)
        number = families.index(family)
        turn = number + number // len(COLOURS) + members[family]
        members[family] += 1
        chosen[row] = Look(COLOURS[number % len(COLOURS)], MARKERS[turn % len(MARKERS)])
    return chosen


def row_handles(shown: Mapping[str, Look], **line: Any) -> list[Line2D]:
    """Return an entry of a legend for each row."""
    return [
        Line2D([], [], color=look.colour, label=plain(row), **{"marker": look.marker} | line)
        for row, look in shown.items()
    ]


@contextmanager
def style() -> Iterator[None]:
    """Apply matplotlib's defaults and our style, whatever the user's configuration says."""
    with matplotlib.style.context(["default", STYLE]):
        yield


def panels(
    count: int, width: float, height: float, share_y: bool = False, columns: int = 4
) -> tuple[Figure, list[Axes]]:
    """Return a figure of `count` panels, `columns` of them in a row, each of a width and height in inches."""
    across = min(count, columns)
    down = -(-count // across)
    figure = Figure(figsize=(across * width + 1.0, down * height))
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.06)
    grid = figure.subplots(down, across, squeeze=False, sharey=share_y)
    axes = list(itertools.chain.from_iterable(grid))
    for unused in axes[count:]:
        unused.set_axis_off()
    return figure, axes[:count]


def layer_axis(axes: Axes, rows: Sequence[str]) -> None:
    """Put the layers on the vertical axis, the first on top."""
    axes.set_yticks(range(len(rows)), [plain(row) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


def value_above(axes: Axes, value: float, row: float, text: str) -> None:
    """Write a value above its point on a horizontal axis."""
    axes.annotate(plain(text), (value, row), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=7)


def side_legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """Add a legend right of the panels, in as many columns as fit its entries; the figure widens for them."""
    width, height = figure.get_size_inches()
    columns = -(-len(handles) // max(1, int((height - 0.3) / LEGEND_LINE)))
    figure.set_size_inches(width + LEGEND_COLUMN * (columns - 1), height)
    names = [str(handle.get_label()) for handle in handles]
    figure.legend(handles, names, loc="outside right upper", ncols=columns)


def footnotes(figure: Figure, notes: Iterable[str]) -> None:
    """Add notes below the panels, each on separate lines that fit the figure, which grows for them."""
    width, height = figure.get_size_inches()
    text = "\n".join(textwrap.fill(plain(note), int(width * NOTE_CHARACTERS)) for note in notes)
    if text:
        figure.set_size_inches(width, height + NOTE_LINE * (1 + text.count("\n")))
        figure.supxlabel(text, fontsize=8, color=INK)


def logarithmic(axis: Axis) -> None:
    """Set ticks of a log scale that are plain numbers: 0.1, 0.2, 0.5, 1, ..."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def plain(text: str) -> str:
    """Return text that matplotlib draws unchanged: no formula begins at a dollar sign, and the font has every glyph.

    A character that it lacks is drawn as its code point: boxes would not tell labels apart.
    """
    return "".join(map(_drawable, text)).replace("$", r"\$")


@functools.cache
def _drawable(mark: str) -> str:
    if formless(mark):
        return ""
    if mark.isspace():
        return mark if mark == "\n" else " "
    glyphs = get_font(findfont(STYLE["font.family"])).get_charmap()
    return mark if ord(mark) in glyphs else f"U+{ord(mark):04X}"


def render(figure: Figure) -> dict[str, bytes]:
    """Return the figure as ".png", and as ".svg" unless it shows pixels."""
    shows_pixels = any(axes.images for axes in figure.axes)
    figure.set_dpi(PIXELS if shows_pixels else DRAWING)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    images = {".png": buffer.getvalue()}
    figure.set_layout_engine("none")  # to compute it again for the SVG takes as long as to draw
    if not shows_pixels:
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
        images[".svg"] = buffer.getvalue()
    return images


def render_pdf(figure: Figure) -> dict[str, bytes]:
    """Return the figure as ".pdf" for a paper: vectors, with letters as text in embedded TrueType fonts."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="pdf", metadata={"CreationDate": None})
    return {".pdf": buffer.getvalue()}


REACH = 3.0  # interquartile ranges beyond the quartiles, from where a value is far
GAIN = 4.0  # the least factor by which leaving out far values must shrink the range
LEAST = 4  # values, for quartiles to mean anything


def inner_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the lowest and the highest value, outliers apart."""
    low, high = min(values), max(values)
    if len(values) < LEAST:
        return low, high
    first, third = np.quantile(values, (0.25, 0.75))
    reach = REACH * (third - first)
    near = [value for value in values if first - reach <= value <= third + reach]
    return (min(near), max(near)) if high - low > GAIN * (max(near) - min(near)) > 0 else (low, high)


def padded(low: float, high: float, share: float) -> tuple[float, float]:
    """Return limits of an axis with a share of their distance on either side, and some room where they are equal."""
    pad = share * (high - low) or 0.05 * abs(high) or 1.0
    return low - pad, high + pad


def arrow(axes: Axes, place: float, text: str, colour: str, along: str, upward: bool) -> None:
    """Draw an arrow at the edge of a panel for a value beyond it, with the value.

    Args:
        place: the position on the other axis.
        along: the axis that the value leaves, "x" or "y".
        upward: whether it leaves at the upper end.
    """
    edge, back = (1.0, -16) if upward else (0.0, 16)
    if along == "x":
        where, offset, transform = (edge, place), (back, 0), axes.get_yaxis_transform()
        sides = {"ha": "right" if upward else "left", "va": "center"}
    else:
        where, offset, transform = (place, edge), (0, back), axes.get_xaxis_transform()
        sides = {"ha": "center", "va": "top" if upward else "bottom"}
    axes.annotate(
        text,
        where,
        xytext=offset,
        xycoords=transform,
        textcoords="offset points",
        fontsize=7.5,
        color=colour,
        arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 1.4, "shrinkA": 1, "shrinkB": 0},
        **sides,  # type: ignore[arg-type]
    )
