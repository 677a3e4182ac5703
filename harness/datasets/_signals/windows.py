"""Split a recording in time, and cut windows from its parts.

    |----------- train -----------| gap |-- validation --| gap |---- test ----|

Neighbouring parts are separated by gaps, because a pulse stays similar for some beats and breaths. No window crosses
the edge of a part or a hole of the recording.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.datasets._signals.wfdb_records import Stretch

_AT_ONCE = 4096  # windows that are copied together


def split_in_time(
    stretches: Sequence[Stretch], validation: float, test: float, gap: int
) -> dict[str, tuple[Stretch, ...]]:
    """Split into test (the last samples), validation (those before) and train (the rest).

    Args:
        stretches: in the order of time.
        validation, test: the fraction of all valid samples that each of the held-out parts has.
        gap: samples of recording time, holes included, that are left out before validation and before test. They
            are taken from what comes before, so that the train part pays for both.

    Returns:
        The stretches of each split; if the recording is too short, those to the left are smaller or empty.
    """
    total = samples(stretches)
    last = _last(stretches, round(test * total))
    rest = _until(stretches, last[0].start - gap) if last else tuple(stretches)
    middle = _last(rest, round(validation * total))
    train = _until(rest, middle[0].start - gap) if middle else rest
    return {"train": train, "validation": middle, "test": last}


def samples(stretches: Sequence[Stretch]) -> int:
    """Return the number of samples of all stretches together."""
    return sum(stretch.values.shape[1] for stretch in stretches)


def _last(stretches: Sequence[Stretch], count: int) -> tuple[Stretch, ...]:
    """Return the last `count` samples, or all if there are fewer."""
    parts: list[Stretch] = []
    for stretch in reversed(stretches):
        if count <= 0:
            break
        first = max(0, stretch.values.shape[1] - count)
        parts.append(Stretch(stretch.start + first, stretch.values[:, first:]))
        count -= stretch.values.shape[1]
    return tuple(reversed(parts))


def _until(stretches: Sequence[Stretch], end: int) -> tuple[Stretch, ...]:
    """Return the samples before sample number `end`."""
    return tuple(
        Stretch(stretch.start, stretch.values[:, : end - stretch.start]) for stretch in stretches if stretch.start < end
    )


def starts(stretch: Stretch, length: int, stride: int) -> np.ndarray:
    """Return the starts of a stretch's windows, counted from its first sample; a remainder at its end is not used."""
    return np.arange(0, max(stretch.values.shape[1] - length + 1, 0), stride)


def fill_windows(target: np.ndarray, values: np.ndarray, begins: np.ndarray) -> None:
    """Copy the windows of values (C, n) that begin at `begins`, (N,), to target (N, C, length).

    Some at a time, so that an array on disk is never in memory as a whole.
    """
    views = np.lib.stride_tricks.sliding_window_view(values, target.shape[2], axis=1)
    for first in range(0, len(begins), _AT_ONCE):
        some = begins[first : first + _AT_ONCE]
        target[first : first + _AT_ONCE] = views[:, some].swapaxes(0, 1)
