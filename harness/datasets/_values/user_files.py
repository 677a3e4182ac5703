"""Read the files of users: the lattice step that options state, the splits of prepared arrays, the list of faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from harness.core.settings import NewSplit, Settings
from harness.datasets._store.store import Store, Writer, prepare, split_key
from harness.datasets._values.encoding import Encoding
from harness.datasets.base import Splits

STEP = "one number above 0, a list of one for each channel of a sequence, or detect"
NOISE = "one width above 0, or a list with a width or null for each channel"
LAST_DIGIT = "last_digit"  # the width of each value is the unit of its last written digit
MOST_WIDTHS = 6  # that a description lists
VERSION = 5  # of the prepared arrays


def _step(value: Any) -> Any:
    """Convert a number to a tuple of one; raise one error for anything but the three forms."""
    if value is None or value == "detect":
        return value
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    if not numbers or any(type(number) not in (int, float) or not 0 < number < np.inf for number in numbers):
        raise PydanticCustomError("step", f"should be {STEP}")
    return tuple(map(float, numbers))


Step = Annotated[tuple[float, ...] | Literal["detect"] | None, BeforeValidator(_step)]


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


def for_each_channel(value: Any, info: ValidationInfo, channels: int | None) -> Any:
    """Return the option `step` or `noise`; raise if it is a list of another length, or both are stated.

    The number of channels is None while it is unknown.
    """
    if isinstance(value, tuple) and channels is not None and len(value) > 1 and len(value) != channels:
        form = STEP if info.field_name == "step" else NOISE
        raise PydanticCustomError("channels", f"should be {form}, for {channels} channel{'s' * (channels > 1)}")
    stated = [name for name in ("step", "levels") if info.data.get(name) is not None]
    if info.field_name == "noise" and value is not None and stated:
        raise PydanticCustomError("noise", f"should be left out with {stated[0]}, whose noise covers one step")
    return value


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


FILES = ("file", "validation_file", "test_file")
"""The options that name files, in the order in which they are read."""


def file_splits(
    store: Store,
    name: str,
    options: Settings,
    build: Callable[[Sequence[Path], Writer], None],
    new: NewSplit | None = None,
) -> Splits:
    """Return the splits of the files that the options name, prepared by `build(paths, writer)` on the first call."""
    files = {option: file for option in FILES if (file := getattr(options, option)) is not None}
    paths = [
        store.find(name, file, f"it is the option `{option}`: beside the suite, below the data root or absolute")
        for option, file in files.items()
    ]
    key = {"version": VERSION, **options.model_dump(mode="json"), **split_key(new)}
    return Splits.of(prepare(store, name, key, paths, lambda writer: build(paths, writer)))


def stated_split_fault(name: str, file: str, exchangeable: bool, keep_test: bool) -> str | None:
    """Return why a split that files state is not drawn anew; None if test is kept and the events are exchangeable."""
    if keep_test and exchangeable:
        return None
    hint = ", or say keep_test: true, which draws validation anew from train" * exchangeable
    return f"{name}: {file} states its split; leave `split` out of repetitions.vary{hint}"
