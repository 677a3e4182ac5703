"""Noise of stated widths: of splits that are loaded, in the words of a description, and of the last written digits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from harness.core.errors import UserError
from harness.datasets._values.encoding import IDENTITY, Encoding, choose_encoding
from harness.datasets._values.splits import Splits
from harness.datasets._values.survey import Survey
from harness.datasets._values.widths import Widths

MOST_WIDTHS = 6  # that a description lists


def with_noise(name: str, splits: Splits, noise: Widths, labels: Sequence[str]) -> Splits:
    """Return splits, in units of stated widths of noise, of channels of these labels.

    Raises:
        UserError: their values have levels, or noise already.
        DataError: a width leaves gaps between the values of a lattice, or is lost in float32.
    """
    if splits.levels is not None or splits.log_widths is not None or splits.noise is not None:
        raise UserError(f"{name}: noise is for values without levels that have none of their own; leave it out")
    axes = (-1, *[1] * (len(splits.shape) - 1))
    lattices = splits.lattices or [IDENTITY] * splits.shape[0]
    offsets, steps = (np.reshape(each, axes) for each in zip(*((of.offset, of.step) for of in lattices), strict=True))
    values = {part: offsets + events * steps for part, events in splits.parts().items()}
    survey = Survey.of(*values.values())
    encoding = choose_encoding(name, survey, "sequence", None, noise, labels)
    facts: dict[str, Any] = encoding.facts("sequence") | {"steps": None}
    facts |= {part: encoding.encode(events, np.arange(len(events))) for part, events in values.items()}
    units = f"; units: {', '.join(dict.fromkeys(unit for _, unit in splits.steps))}" if splits.steps else ""
    return replace(splits, description=f"{splits.description}{noise_text(encoding)}{units}", **facts)


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
