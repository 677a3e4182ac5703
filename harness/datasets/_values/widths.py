"""The options that state a lattice step or the width of noise: one number, or one for each channel."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError

STEP = "one number above 0, a list of one for each channel of a sequence, or detect"
WIDTH = "the width of uniform noise that is added to the values, in their units"
NOISE = "one width above 0, or a list with a width or null for each channel"
LAST_DIGIT = "last_digit"  # the width of each value is the unit of its last written digit


def _numbers(word: str, rule: str, value: Any) -> Any:
    """Convert a number to a tuple of one; raise one error for anything but a word and the forms of the rule."""
    if value is None or value == word:
        return value
    listed = isinstance(value, (list, tuple))
    numbers = value if listed else (value,)
    stated = [number for number in numbers if not (rule == NOISE and listed and number is None)]
    if not stated or any(type(number) not in (int, float) or not 0 < number < np.inf for number in stated):
        raise PydanticCustomError("numbers", f"should be {rule}")
    return tuple(None if number is None else float(number) for number in numbers)


def not_of_digits(value: Any) -> Any:
    """Return a noise that is stated by widths; raise for that of the last digit."""
    if value == LAST_DIGIT:
        raise PydanticCustomError("noise", f"should be {NOISE}: last_digit is for csv, where numbers are written")
    return value


Widths = tuple[float | None, ...]
Step = Annotated[tuple[float, ...] | Literal["detect"] | None, BeforeValidator(partial(_numbers, "detect", STEP))]
Noise = Annotated[Widths | Literal["last_digit"] | None, BeforeValidator(partial(_numbers, LAST_DIGIT, NOISE))]
StatedNoise = Annotated[Noise, AfterValidator(not_of_digits)]
