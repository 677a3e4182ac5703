"""Flat lines of waveforms, as of a sensor that is off, and noise over the cells of the converter."""

from __future__ import annotations

import numpy as np

FLAT_LINE = 15  # equal samples


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
