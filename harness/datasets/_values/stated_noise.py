"""Noise of stated widths: of splits that are loaded, in the words of a description, and of the last written digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.datasets._values.encoding import IDENTITY, Encoding, Noise, choose_encoding
from harness.datasets._values.lattice import Lattice
from harness.datasets._values.survey import Survey

MOST_WIDTHS = 6  # that a description lists


def with_noise(
    name: str, parts: Mapping[str, np.ndarray], lattices: Sequence[Lattice] | None, noise: Noise, labels: Sequence[str]
) -> tuple[dict[str, np.ndarray], Encoding]:
    """Return splits whose channels get noise of stated widths, in these widths, and their encoding.

    Args:
        name: begins messages.
        parts: the splits, each (N, C, *spatial).
        lattices: the values that the entries stand for, one for each channel; None: themselves.
        noise: the widths, in the units of these values.
        labels: names of the channels, for messages.

    Raises:
        DataError: a width leaves gaps between the values of a lattice, or is lost in float32.
    """
    train = parts["train"]
    axes = (-1, *[1] * (train.ndim - 2))
    offsets, steps = np.array([(each.offset, each.step) for each in lattices or [IDENTITY] * train.shape[1]]).T
    values = {part: offsets.reshape(axes) + events * steps.reshape(axes) for part, events in parts.items()}
    survey = Survey(train.shape[1], np.dtype(np.float64), sum(map(len, parts.values())) * train[0, 0].size)
    for events in values.values():
        survey.add(events)
    encoding = choose_encoding(name, survey, "sequence", None, noise, labels)
    return {part: encoding.encode(events, np.arange(len(events))) for part, events in values.items()}, encoding


def noise_text(encoding: Encoding) -> str:
    """Return a clause on stated noise; empty without."""
    if encoding.noise is None:
        return ""
    texts = dict.fromkeys("none" if width is None else f"{width:.4g}" for width in encoding.noise)
    there = [width for width in encoding.noise if width is not None]
    some = f"{min(there):.4g} to {max(there):.4g}" + " (in some channels none)" * ("none" in texts)
    widths = ", ".join(texts) if len(texts) <= MOST_WIDTHS else some
    share = f"; up to {encoding.repeated:.0%} of the values of a channel occur more than once" * (encoding.repeated > 0)
    if encoding.digits is None:
        return f"; uniform noise of the stated width {widths}{share}"
    lost = f"; in {encoding.lost} columns at least 2^-20 of the range, as float32 holds no less" * (encoding.lost > 0)
    return f"; uniform noise of the unit of the last digit of each value, at least {widths}{lost}{share}"


def written_digits(values: np.ndarray) -> tuple[float, int]:
    """Return the unit of the last decimal of numbers as they are written, and how many significant digits they have.

    Trailing zeros count for a number if others have digits there: of 5, 5.1 and 12.3 the unit is 0.1, and of 1.234,
    12.34 and 5 there are four digits. At most 15 digits are counted.
    """
    finest, most = -400, 1
    for value in np.unique(np.abs(values)).tolist():
        if value:
            digits, _, exponent = f"{value:.14e}".partition("e")
            count = len(digits.rstrip("0")) - 1
            finest, most = max(finest, count - 1 - int(exponent)), max(most, count)
    return float(f"1e{-finest}") if finest > -400 else 1.0, most
