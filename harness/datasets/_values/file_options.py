"""Options that files of numbers have in common: the lattice step of their values, and the shares of the splits."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from harness.core.errors import DataError

STEP = "one number above 0, a list of one for each channel of a sequence, or detect"
SPLITS = ("train", "validation", "test")
SHARES = (0.8, 0.1, 0.1)  # of the splits in the order of SPLITS, unless the options decide otherwise


def _step(value: Any) -> Any:
    """Convert a number to a tuple of one; raise one error for anything but the three forms."""
    if value is None or value == "detect":
        return value
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    right = [
        isinstance(number, (int, float)) and not isinstance(number, bool) and 0 < number < np.inf for number in numbers
    ]
    if not right or not all(right):
        raise PydanticCustomError("step", f"should be {STEP}")
    return tuple(map(float, numbers))


def _at_most_all(shares: tuple[float, ...]) -> tuple[float, ...]:
    if math.fsum(shares) > 1 + 1e-9:
        raise PydanticCustomError("shares", "should sum to at most 1")
    return shares


Step = Annotated[tuple[float, ...] | Literal["detect"] | None, BeforeValidator(_step)]
Share = Annotated[float, Field(gt=0, lt=1, strict=True)]
Shares = Annotated[tuple[Share, Share, Share], AfterValidator(_at_most_all)]


def share_out(name: str, total: int, shares: tuple[float, ...]) -> list[int]:
    """Return the number of events of each split, in the order of SPLITS, of `total` events.

    Raises:
        DataError: a split would have none; the message starts with `name`.
    """
    counts = [last - first for first, last in pairwise([0, *(round(total * end) for end in accumulate(shares))])]
    if 0 in counts:
        empty = SPLITS[counts.index(0)]
        raise DataError(f"{name}: {total} events in the shares {list(shares)} leave none for {empty}; give more events")
    return counts
