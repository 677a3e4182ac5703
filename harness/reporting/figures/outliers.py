"""Limits that a few far values do not stretch, and arrows in place of what lies beyond them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

REACH = 3.0  # interquartile ranges beyond the quartiles, from where a value is far
GAIN = 4.0  # the least factor by which leaving out far values must shrink the range
LEAST = 4  # values, for quartiles to mean anything
ALIGNED = {"left": 0.0, "center": 0.5, "right": 1.0}


def inner_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the lowest and the highest value without those that are far from all others."""
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


def arrow(axes: Axes, place: float, text: str, colour: str, along: str, upward: bool, align: str = "center") -> None:
    """Draw an arrow at the edge of a panel for a value beyond it, with the value.

    Args:
        place: the position on the other axis.
        along: the axis that the value leaves, "x" or "y".
        upward: whether it leaves at the upper end.
        align: the part of the text that is at `place` where the value leaves along "y": "left", "center" or "right".
    """
    edge, back = (1.0, -16) if upward else (0.0, 16)
    if along == "x":
        where, offset, transform = (edge, place), (back, 0), axes.get_yaxis_transform()
        sides = {"ha": "right" if upward else "left", "va": "center"}
    else:
        where, offset, transform = (place, edge), (0, back), axes.get_xaxis_transform()
        sides = {"ha": align, "va": "top" if upward else "bottom"}
    start = (ALIGNED[sides["ha"]] if along == "y" else 0.5, 0.5)  # of the line, in the box of the text
    axes.annotate(
        text,
        where,
        xytext=offset,
        xycoords=transform,
        textcoords="offset points",
        fontsize=7.5,
        color=colour,
        arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 1.4, "shrinkA": 1, "shrinkB": 0, "relpos": start},
        **sides,  # type: ignore[arg-type]
    )
