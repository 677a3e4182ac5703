"""The options that state a lattice step or the width of noise: one number, or one for each channel."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError

STEP = "one number above 0, a list of one for each channel of a sequence, or detect"
WIDTH = "the width of uniform noise that is added to the values, in their units"
NOISE = "one width above 0, or a list with a width or null for each channel"
LAST_DIGIT = "last_digit"  # the width of each value is the unit of its last written digit


def _step(value: Any) -> Any:
    """Convert a number to a tuple of one; raise one error for anything but the three forms."""
    if value is None or value == "detect":
        return value
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    if not numbers or any(type(number) not in (int, float) or not 0 < number < np.inf for number in numbers):
        raise PydanticCustomError("step", f"should be {STEP}")
    return tuple(map(float, numbers))


Step = Annotated[tuple[float, ...] | Literal["detect"] | None, BeforeValidator(_step)]


def not_of_digits(value: Any) -> Any:
    """Return a noise that is stated by widths; raise for that of the last digit."""
    if value == LAST_DIGIT:
        raise PydanticCustomError("noise", f"should be {NOISE}: last_digit is for csv, where numbers are written")
    return value


def _noise(value: Any) -> Any:
    """Convert a number to a tuple of one; raise one error for anything but the two forms."""
    if value is None or value == LAST_DIGIT:
        return value
    widths = value if isinstance(value, (list, tuple)) else (value,)
    of_list = isinstance(value, (list, tuple))
    right = [(type(width) in (int, float) and 0 < width < np.inf) or (of_list and width is None) for width in widths]
    if not right or not all(right) or all(width is None for width in widths):
        raise PydanticCustomError("noise", f"should be {NOISE}")
    return tuple(None if width is None else float(width) for width in widths)


Noise = Annotated[tuple[float | None, ...] | Literal["last_digit"] | None, BeforeValidator(_noise)]
StatedNoise = Annotated[Noise, AfterValidator(not_of_digits)]
