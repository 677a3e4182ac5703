"""One pass over all values of a source, in blocks, to collect the facts that encoding needs."""

from __future__ import annotations

import numpy as np

MOST_DISTINCT = 1 << 17  # distinct values kept per channel: twice the levels of a found lattice
SAMPLE = 1 << 15  # values per channel, evenly spread, that are checked for repeats


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

    def add(self, events: np.ndarray) -> None:
        """Add events (n, C, *spatial), finite; n > 0."""
        for channel in range(events.shape[1]):
            values = np.ravel(events[:, channel])
            self.low[channel] = min(self.low[channel], values.min())
            self.high[channel] = max(self.high[channel], values.max())
            if self.dtype.kind == "f":
                self._see_distinct(channel, values)
                self._samples[channel].append(values[:: self._stride].copy())
            elif self.divisor[channel] != 1:
                self._see_divisor(channel, values)
        self.count += events[:, 0].size

    def _see_distinct(self, channel: int, values: np.ndarray) -> None:
        known = self._distinct[channel]
        if known is not None:
            known = np.union1d(known, values)
            self._distinct[channel] = known if len(known) <= MOST_DISTINCT else None

    def _see_divisor(self, channel: int, values: np.ndarray) -> None:
        exact = values.astype(np.int64)
        divisor = np.gcd.reduce(exact - self._first.setdefault(channel, int(exact[0])))
        self.divisor[channel] = np.gcd(self.divisor[channel], divisor)

    def distinct(self, channel: int | None = None) -> np.ndarray | None:
        """Return the distinct values of a channel (None: of all), ascending; None if more than MOST_DISTINCT."""
        if channel is not None:
            return self._distinct[channel]
        parts = [part for part in self._distinct if part is not None]
        return np.unique(np.concatenate(parts)) if len(parts) == len(self._distinct) else None

    def repeated(self, channel: int) -> float:
        """Return the share of a channel's sample that has a value which occurs in the sample more than once."""
        sample = np.concatenate(self._samples[channel])
        _, counts = np.unique(sample, return_counts=True)
        return float(counts[counts > 1].sum() / len(sample))
