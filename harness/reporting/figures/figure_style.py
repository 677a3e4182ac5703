"""How every figure looks, and how it becomes bytes: equal figures, equal bytes."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import matplotlib.style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

INK = "#333333"
PALE = "#d9d9d9"

LEGEND_LINE, LEGEND_COLUMN = 0.19, 1.8  # inches: height of an entry, width of a column

# Okabe & Ito's palette, which people with any common colour vision tell apart, without its yellow.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

STYLE: dict[str, Any] = {
    "figure.dpi": 100,
    "savefig.dpi": 160,
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
    "svg.hashsalt": "invertbench",  # ids of SVG elements are random without it
    "path.simplify": True,
}


@contextmanager
def style() -> Iterator[None]:
    """matplotlib's own defaults and our style, whatever the user's configuration says."""
    with matplotlib.style.context(["default", STYLE]):
        yield


def colour(position: int) -> str:
    """The colour of the row at a position of the plan; more than seven repeat, with another marker."""
    return COLOURS[position % len(COLOURS)]


def marker(position: int) -> str:
    """The marker of the row at a position; it and the colour together repeat after 49 rows."""
    return MARKERS[(position + position // len(COLOURS)) % len(MARKERS)]


def panels(
    count: int, width: float, height: float, share_y: bool = False, columns: int = 4
) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels, `columns` of them in a row, each of a width and height in inches."""
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
    """The layers on the vertical axis, the first on top."""
    axes.set_yticks(range(len(rows)), [plain(row) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


def side_legend(figure: Figure, handles: Sequence[Artist], labels: Sequence[str] | None = None) -> None:
    """A legend right of the panels, in as many columns as it needs not to be cut off; the figure widens for them."""
    width, height = figure.get_size_inches()
    columns = -(-len(handles) // max(1, int((height - 0.3) / LEGEND_LINE)))
    figure.set_size_inches(width + LEGEND_COLUMN * (columns - 1), height)
    names = [str(handle.get_label()) for handle in handles] if labels is None else labels
    figure.legend(handles, names, loc="outside right center", ncols=columns)


def logarithmic(axis: Axis) -> None:
    """A log scale whose ticks are plain numbers: 0.1, 0.2, 0.5, 1, ..."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def plain(text: str) -> str:
    """Text that matplotlib sets as it is: a dollar sign starts no formula."""
    return text.replace("$", r"\$")


def slug(text: str) -> str:
    """A label as part of a file name."""
    return re.sub(r"\W+", "-", text.lower()).strip("-")


def render(name: str, figure: Figure) -> dict[str, bytes]:
    """The figure as `name.png` and, unless it shows pictures, `name.svg`, which would only wrap the same pixels."""
    files = {}
    pictures = any(axes.images for axes in figure.axes)
    for form, metadata in (("png", {"Software": None}), ("svg", {"Date": None}))[: 1 if pictures else 2]:
        buffer = io.BytesIO()
        figure.savefig(buffer, format=form, metadata=metadata, facecolor="white")
        files[f"{name}.{form}"] = buffer.getvalue()
    return files
