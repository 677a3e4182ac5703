"""Lattices of values, offset + k * step with whole k: found from a survey of the values, or stated and then checked.

A density on lattice values needs noise over the whole cell (see `harness.pipeline.pipeline`), so 8-bit pixels divided
by 255, or converter counts times a gain, have to become whole numbers again. Nothing is guessed: a lattice is accepted
only if every value is on it within the rounding of the type in which it is stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

MOST_LEVELS = 1 << 16  # points of a found lattice; a finer one has to be stated
FEWEST = 8  # distinct values that reveal a lattice although none occurs twice
# Fraction of a step by which values may miss a stated lattice, whose step, or they themselves, have few digits: counts
# of a step of 0.03, each rounded to three decimals, are off by up to 0.0005, and from the smallest value by 0.001.
STATED_ERROR = 0.035
EXACT = 1 << 53  # whole numbers up to here are exact in float64
MOST_DISTINCT = 1 << 17  # distinct values kept per channel: twice the levels of a found lattice
SAMPLE = 1 << 15  # values per channel, evenly spread, that are checked for repeats
FINEST = 2.0**-20  # width of noise, as a share of the range, that float32 of scaled values still holds


@dataclass(frozen=True)
class Lattice:
    """The values offset + k * step for whole k."""

    offset: float
    step: float  # not 0, and above 0 where it is found or stated; a converter may have a negative gain
    tolerance: float = 0.0  # allowed distance of a stored value from its lattice point; 0 for integers

    def __post_init__(self) -> None:
        if not (math.isfinite(self.offset) and math.isfinite(self.step) and self.step and self.tolerance >= 0):
            raise ValueError(f"{self}: offset and step must be finite, step not 0, and tolerance 0 or more")

    def index(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return k of each value, int64, and whether each is off the lattice, bool."""
        exact = values.astype(np.float64)
        k = np.rint((exact - self.offset) / self.step)
        return k.astype(np.int64), np.abs(exact - (self.offset + k * self.step)) > self.tolerance

    def counted_from_zero(self, low: float, high: float, most: int | None, points: np.ndarray | None = None) -> Lattice:
        """Return the same lattice for values low..high, counted from 0 if that is a lattice point, else from low.

        Counts from 0 keep the numbers that a converter or a pixel had; they must be 0..most-1, or, if `most` is None,
        fit into float64; `points`, rounded values on this lattice, must be on that from 0.
        """
        from_zero = Lattice(0.0, self.step, self.tolerance)
        k, off = from_zero.index(np.append([low, high], [] if points is None else points))
        fits = max(abs(low), abs(high)) < EXACT * self.step if most is None else k.min() >= 0 and k.max() < most
        if fits and not off.any():
            return from_zero
        return Lattice(self.offset + round((low - self.offset) / self.step) * self.step, self.step, self.tolerance)


def rounding(dtype: np.dtype, largest: float) -> float:
    """Return the rounding error of stored values of at most `largest` after one or two operations."""
    return 0.0 if dtype.kind in "iu" else float(np.finfo(dtype).eps) * largest


def stated_lattice(step: float, low: float, high: float, dtype: np.dtype) -> Lattice | None:
    """Return the lattice of this step through the value `low`; None if rounding hides a step so small."""
    error = 2 * rounding(dtype, max(abs(low), abs(high)))
    if error > step / 4:
        return None
    return Lattice(low, step, max(error, STATED_ERROR * step) if dtype.kind == "f" else 0.0)


def find_lattice(points: np.ndarray, dtype: np.dtype, count: int) -> Lattice | None:
    """Return the coarsest lattice that contains floating-point values, or None.

    float64 values may have passed through float32, so that its rounding is tried too. A lattice that is fine next to
    the rounding of the type and of which few points occur may not be found.

    Args:
        points: the distinct values, ascending, at least one, finite.
        dtype: the type that they are stored in.
        count: how many values there are, repeated ones counted.

    Returns:
        None if there is no such lattice, if all values are equal, or if they are too few to show one.
    """
    points = points.astype(np.float64)
    if len(points) < FEWEST and count < 2 * len(points):
        return None
    largest = float(np.abs(points).max())
    types = [dtype, np.dtype(np.float32)] if dtype.itemsize == 8 else [dtype]
    for kind in types:
        tolerance = rounding(kind, largest)
        lattice = _common_lattice(points, tolerance)
        if lattice is not None:
            return Lattice(*lattice, 2 * tolerance)
    return None


def _common_lattice(points: np.ndarray, tolerance: float) -> tuple[float, float] | None:
    """Return (offset, step) such that all points are on it within 2 * tolerance; each may be off by one tolerance."""
    merged = _merged(points, tolerance)
    if merged is None or len(merged) < 2:
        return None
    divisor = _common_divisor(np.diff(merged), 2 * tolerance)
    if divisor is None:
        return None
    k = _counts(merged - merged[0], *divisor, 2 * tolerance)
    if k[-1] >= MOST_LEVELS:
        return None
    centred = k - k.mean()
    step = float(centred @ (merged - merged.mean()) / (centred @ centred))  # least squares
    offset = float(merged.mean() - step * k.mean())
    off = np.abs(points - (offset + np.rint((points - offset) / step) * step))
    return None if off.max() > 2 * tolerance else (offset, step)


def _merged(points: np.ndarray, tolerance: float) -> np.ndarray | None:
    """Return points without the duplicates caused by rounding; None if they are as dense as rounding."""
    starts = np.flatnonzero(np.diff(points, prepend=-np.inf) > 2 * tolerance)
    ends = np.append(starts[1:], len(points)) - 1
    if (points[ends] - points[starts] > 4 * tolerance).any():
        return None
    return (points[starts] + points[ends]) / 2


def _common_divisor(gaps: np.ndarray, error: float) -> tuple[float, float] | None:
    """Return the largest step of which all gaps (> 0, +- error) are multiples, and its error, by Euclid's algorithm."""
    rest, errors = gaps, np.full(len(gaps), error)
    while True:
        least = rest.argmin()
        step, uncertain = float(rest[least]), float(errors[least])
        if step <= 4 * uncertain:
            return None
        multiples = np.rint(rest / step)
        errors = errors + multiples * uncertain
        rest = np.abs(rest - multiples * step)
        left = rest > errors  # a remainder that may be zero is taken for zero
        if not left.any():
            return step, uncertain
        rest, errors = np.append(rest[left], step), np.append(errors[left], uncertain)


def _counts(distances: np.ndarray, step: float, uncertain: float, error: float) -> np.ndarray:
    """Return k of points at these distances (ascending from 0): farther and farther ones make the step more exact."""
    reach = 0
    while reach < len(distances) - 1:
        within = np.searchsorted(distances, step * step / (4 * uncertain), side="right") - 1
        reach = max(int(within), reach + 1)
        k = max(round(distances[reach] / step), 1)
        step, uncertain = float(distances[reach] / k), error / k
    return np.rint(distances / step)


class Survey:
    """Statistics of the values of each channel, of which `total` are expected (for the spread of the sample).

    Attributes:
        low, high: smallest and largest value of each channel, (C,) in float64.
        divisor: for integers, the greatest common divisor of all differences in each channel; 0 where all are equal.
        count: number of values of a channel seen.
    """

    def __init__(self, channels: int, dtype: np.dtype, total: int) -> None:
        self.dtype = dtype
        self.low = np.full(channels, np.inf)
        self.high = np.full(channels, -np.inf)
        self.divisor = np.zeros(channels, dtype=np.int64)
        self.count = 0
        self._stride = max(1, total // SAMPLE)
        self._first: dict[int, int] = {}
        self._distinct: list[np.ndarray | None] = [np.empty(0, dtype) for _ in range(channels)]
        self._samples: list[list[np.ndarray]] = [[] for _ in range(channels)]

    @classmethod
    def of(cls, *parts: np.ndarray) -> Survey:
        """Return the survey of arrays (n, C, *spatial) of one type."""
        survey = cls(parts[0].shape[1], parts[0].dtype, sum(part[:, 0].size for part in parts))
        for part in parts:
            survey.add(part)
        return survey

    def add(self, events: np.ndarray) -> None:
        """Add events (n, C, *spatial), finite; n > 0."""
        for channel in range(events.shape[1]):
            values = np.ravel(events[:, channel])
            self.low[channel] = min(self.low[channel], values.min())
            self.high[channel] = max(self.high[channel], values.max())
            if self.dtype.kind == "f":
                self._samples[channel].append(values[:: self._stride].copy())
                if (distinct := self._distinct[channel]) is not None:
                    distinct = np.union1d(distinct, values)
                    self._distinct[channel] = distinct if len(distinct) <= MOST_DISTINCT else None
            elif self.divisor[channel] != 1:
                exact = values.astype(np.int64)
                differences = exact - self._first.setdefault(channel, int(exact[0]))
                self.divisor[channel] = np.gcd(self.divisor[channel], np.gcd.reduce(differences))
        self.count += events[:, 0].size

    def distinct(self, channel: int | None = None) -> np.ndarray | None:
        """Return the distinct values of a channel (None: of all), ascending; None if more than MOST_DISTINCT."""
        if channel is not None:
            return self._distinct[channel]
        parts = [part for part in self._distinct if part is not None]
        return np.unique(np.concatenate(parts)) if len(parts) == len(self._distinct) else None

    @property
    def least(self) -> np.ndarray:
        """Return the narrowest noise that float32 of each channel's scaled values holds, (C,)."""
        return FINEST * (self.high - self.low)

    def repeated(self, channel: int) -> tuple[float, float, float]:
        """Return, of a sample of a channel, the share of repeated values, the commonest one, and its share."""
        sample = np.concatenate(self._samples[channel])
        values, counts = np.unique(sample, return_counts=True)
        share = counts[counts > 1].sum() / len(sample)
        return float(share), float(values[counts.argmax()]), float(counts.max() / len(sample))

    def usual_gap(self, channel: int) -> float:
        """Return a round number near the median distance of neighbouring distinct values of a channel."""
        gaps = np.diff(np.unique(np.concatenate(self._samples[channel]).astype(np.float64)))
        return float(f"{max(float(np.median(gaps)) if len(gaps) else 1.0, 2 * float(self.least[channel])):.0e}")
