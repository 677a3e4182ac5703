"""Survey the values of a source while they stream by: their range, distinct values, divisors and repeats."""

from __future__ import annotations

import numpy as np

MOST_DISTINCT = 1 << 17  # distinct values kept per channel: twice the levels of a found lattice
SAMPLE = 1 << 15  # values per channel, evenly spread, that are checked for repeats
FINEST = 2.0**-20  # width of noise, as a share of the range, that float32 of scaled values still holds


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

    def repeated(self, channel: int) -> tuple[float, float, float]:
        """Return, of a sample of a channel, the share of repeated values, the commonest one, and its share."""
        sample = np.concatenate(self._samples[channel])
        values, counts = np.unique(sample, return_counts=True)
        share = counts[counts > 1].sum() / len(sample)
        return float(share), float(values[counts.argmax()]), float(counts.max() / len(sample))

    def usual_gap(self, channel: int) -> float:
        """Return a round number near the median distance of neighbouring distinct values of a channel."""
        gaps = np.diff(np.unique(np.concatenate(self._samples[channel]).astype(np.float64)))
        least = float(self.high[channel] - self.low[channel]) * FINEST
        return float(f"{max(float(np.median(gaps)) if len(gaps) else 1.0, 2 * least):.0e}")
