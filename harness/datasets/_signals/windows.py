"""Split a recording in time, and cut windows from its parts.

    |----------- train -----------| gap |-- validation --| gap |---- test ----|

Neighbouring parts are separated by gaps, because a pulse stays similar for some beats and breaths. No window crosses
the edge of a part or a hole of the recording. A new split closes the recording to a ring and rotates it first:

    |- train -| gap |- validation -| gap |-- test --|(end, begin)|-- test --| gap |------ train ------|

Its end and begin are no neighbours in time: no gap is needed there, and no window crosses the place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness.core.settings import NewSplit
from harness.datasets._store.selection import split_generator

FLAT_LINE = 15  # equal samples, as of a sensor that is off
_AT_ONCE = 4096  # windows that are copied together


@dataclass(frozen=True)
class Stretch:
    """Samples without a hole."""

    start: int  # sample number since the recording began; several records follow one another
    values: np.ndarray  # (C, n), integers of the converter

    @property
    def stop(self) -> int:
        """The sample number after the last."""
        return self.start + self.values.shape[1]


def stretches_of(values: np.ndarray, valid: np.ndarray, start: int = 0) -> Iterator[Stretch]:
    """Yield the runs of valid samples of values (C, n) whose first sample has the number `start`."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], valid.view(np.int8), [0]])))
    for first, last in edges.reshape(-1, 2):
        yield Stretch(start + int(first), values[:, first:last])


def split_in_time(
    stretches: Sequence[Stretch], validation: float, test: float, gap: int, new: NewSplit | None = None
) -> tuple[dict[str, tuple[Stretch, ...]], float | None]:
    """Split into test (the last samples), validation (those before) and train (the rest).

    Args:
        stretches: in the order of time.
        validation, test: the fraction of all valid samples that each of the held-out parts has.
        gap: samples of recording time, holes included, that are left out before validation and before test. They
            are taken from what comes before, so that the train part pays for both.
        new: a new split, of the recording closed to a ring and rotated at random, in which a third gap separates the
            end of test from the begin of train. If test is kept, the samples before its gap are rotated alone.

    Returns:
        The stretches of each split; if the recording is too short, those to the left are smaller or empty. Sample
        numbers increase through the splits: those after the ring's joint continue behind those before it. The share of
        the samples that a drawn test split has, 0 of a kept one; None without `new`.
    """
    total = samples(stretches)
    counts = round(validation * total), round(test * total)
    rest, last = _hold_out(stretches, counts[1], gap)
    if new is None:
        train, middle = _hold_out(rest, counts[0], gap)
        return {"train": train, "validation": middle, "test": last}, None
    rest, kept = (rest, last) if new.keep_test else (tuple(stretches), ())
    count = samples(rest)
    behind, ahead = _hold_out(rest, count - int(split_generator(new.seed).random() * count), 0)
    turn = rest[-1].stop - rest[0].start + gap if rest else 0  # a hole at the joint, which serves as a gap
    rotated = (*ahead, *(Stretch(stretch.start + turn, stretch.values) for stretch in behind))
    rest, last = _hold_out(rotated, 0 if new.keep_test else counts[1], gap)
    train, middle = _hold_out(rest, counts[0], gap)
    held_out = last or middle
    train = _between(train, held_out[-1].stop - turn + gap, math.inf) if held_out else train
    share = samples(last) / total if total else 0.0
    return {"train": train, "validation": middle, "test": kept or last}, share


def described_ring(new: NewSplit) -> str:
    """Return a clause on the origin of a new split."""
    where, kept = ("the time before test", ", test is kept") if new.keep_test else ("time", "")
    return f"split {new.seed}: {where} is closed to a ring and rotated before it is split{kept}"


def samples(stretches: Sequence[Stretch]) -> int:
    """Return the number of samples of all stretches together."""
    return sum(stretch.values.shape[1] for stretch in stretches)


def _hold_out(stretches: Sequence[Stretch], count: int, gap: int) -> tuple[tuple[Stretch, ...], tuple[Stretch, ...]]:
    """Return the samples until `gap` before the last `count` samples, and those: all if there are fewer."""
    begin = math.inf
    for stretch in reversed(stretches):
        if count <= 0:
            break
        begin = max(stretch.start, stretch.stop - count)
        count -= stretch.values.shape[1]
    return _between(stretches, -math.inf, begin - gap), _between(stretches, begin, math.inf)


def _between(stretches: Sequence[Stretch], begin: float, end: float) -> tuple[Stretch, ...]:
    """Return the samples with numbers from `begin` to before `end`."""
    parts = []
    for stretch in stretches:
        if (first := max(begin, stretch.start)) < (last := min(end, stretch.stop)):
            inside = slice(int(first) - stretch.start, int(last) - stretch.start)
            parts.append(Stretch(int(first), stretch.values[:, inside]))
    return tuple(parts)


def starts(stretch: Stretch, length: int, stride: int) -> np.ndarray:
    """Return the starts of a stretch's windows, counted from its first sample; a remainder at its end is not used."""
    return np.arange(0, max(stretch.values.shape[1] - length + 1, 0), stride)


def fill_windows(target: np.ndarray, cuts: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
    """Copy windows to target (N, C, length), one cut after another: of values (C, n) those that begin at `begins`.

    Some at a time, so that an array on disk is never in memory as a whole.
    """
    for values, begins in cuts:
        for first in range(0, len(begins), _AT_ONCE):
            views = np.lib.stride_tricks.sliding_window_view(values, target.shape[2], axis=1)
            some = begins[first : first + _AT_ONCE]
            target[: len(some)] = views[:, some].swapaxes(0, 1)
            target = target[len(some) :]


def flat_line_shares(values: np.ndarray, begins: np.ndarray, length: int) -> np.ndarray:
    """Return the share of each window's samples in a flat line: a run of FLAT_LINE or more equal samples, (N,).

    Of all channels of the integers `values`, (C, n), the largest share counts; the windows begin at `begins`, (N,).
    Slapnicar et al. (2019), https://doi.org/10.3390/s19153420, drop waveforms with a share above 0.05.
    """
    shares = []
    for row in values:
        edges = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1], [True]]))
        flat = np.repeat(np.diff(edges) >= FLAT_LINE, np.diff(edges))
        sums = np.concatenate([[0], np.cumsum(flat)])
        shares.append((sums[begins + length] - sums[begins]) / length)
    return np.max(shares, axis=0)


def spread_over_cells(values: np.ndarray, start: int) -> np.ndarray:
    """Add noise, uniform on [0, 1), to integers (C, n): dequantised once, with other noise for each `start`."""
    return values + np.random.Generator(np.random.PCG64(np.random.SeedSequence([0, start]))).random(values.shape)
