"""Find windows of a recording with flat lines, as left by a sensor that is off.

Source: G. Slapnicar, N. Mlakar, M. Lustrek (2019), Blood Pressure Estimation from Photoplethysmogram Using a
Spectro-Temporal Deep Neural Network, Sensors 19, 3420, https://doi.org/10.3390/s19153420.
"""

from __future__ import annotations

import numpy as np


def flat_line_shares(values: np.ndarray, begins: np.ndarray, length: int, at_least: int) -> np.ndarray:
    """Return the share of each window's samples in a flat line: a run of `at_least` or more equal samples, (N,).

    Of all channels of the integers `values`, (C, n), the largest share counts; the windows begin at `begins`, (N,). In
    the source a line has 15 samples, and windows with a share above 0.05 are dropped.
    """
    shares = []
    for row in values:
        runs = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
        lengths = np.diff(np.append(runs, len(row)))
        sums = np.concatenate([[0], np.cumsum(np.repeat(lengths, lengths) >= at_least)])
        shares.append((sums[begins + length] - sums[begins]) / length)
    return np.max(shares, axis=0)
