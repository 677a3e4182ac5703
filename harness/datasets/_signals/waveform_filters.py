"""Cleaning of waveforms, as before the published experiments: flat lines, flat peaks, and a band-pass.

The first two use the converter's integers and drop whole windows; what remains stays on its lattice. A
band-pass changes values: it comes after dequantisation, changes the floor by a log-determinant that cannot be
stated where it has zeros, and its results are comparable under the same filter only.

Source: G. Slapnicar, N. Mlakar, M. Lustrek (2019), Blood Pressure Estimation from Photoplethysmogram Using a
Spectro-Temporal Deep Neural Network, Sensors 19, 3420, https://doi.org/10.3390/s19153420, and its scripts. They judge
whole files, filter the PPG alone (order 4, 0.5 to 8 Hz, both directions), and replace outliers of the ABP by
a running median (Hampel filter), which is not done here.
"""

from __future__ import annotations

import numpy as np


def flat_line_shares(values: np.ndarray, begins: np.ndarray, length: int, at_least: int) -> np.ndarray:
    """Return the share of each window's samples in a flat line: a run of `at_least` or more equal samples, (N,).

    Of all channels of the integers `values`, (C, n), the largest share counts; the windows begin at `begins`, (N,). In
    the source a line has 15 samples, and windows with a share above 0.05 are dropped.
    """
    shares = [_in_windows(_runs(row)[1] >= at_least, begins, length) / length for row in values]
    return np.max(shares, axis=0)


def flat_peak_shares(values: np.ndarray, begins: np.ndarray, length: int, at_least: int) -> np.ndarray:
    """Return the share of each window's peaks, or of its valleys, that are flat.

    A peak is a run of equal samples with smaller neighbours on both sides, a valley one with larger neighbours; it
    is flat from `at_least` samples on and belongs to the window that has its first sample.

    Returned is the largest share among both kinds and all channels, (N,); 1 if a kind does not occur, as in no real
    pulse. In the source a flat peak has 5 samples, and windows with a share of 0.05 or more are dropped.
    """
    shares = []
    for row in values:
        first, run = _runs(row)
        step = np.sign(np.diff(row.astype(np.int64), prepend=row[:1], append=row[-1:]))
        # At the first sample of a run: how the signal came to its level, and how it leaves it.
        came = step[:-1]
        left = step[np.minimum(np.arange(len(row)) + run, len(row))]
        for way in (1, -1):
            extreme = first & (came == way) & (left == -way)
            total = _in_windows(extreme, begins, length)
            flat = _in_windows(extreme & (run >= at_least), begins, length)
            shares.append(np.where(total > 0, flat / np.maximum(total, 1), 1.0))
    return np.max(shares, axis=0)


def _runs(row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each sample, whether it is the first of a run of equal samples, and the length of that run."""
    first = np.concatenate([[True], row[1:] != row[:-1]])
    begins = np.flatnonzero(first)
    lengths = np.diff(np.append(begins, len(row)))
    return first, np.repeat(lengths, lengths)


def _in_windows(marks: np.ndarray, begins: np.ndarray, length: int) -> np.ndarray:
    """Return how many samples of each window are marked."""
    sums = np.concatenate([[0], np.cumsum(marks)])
    return sums[begins + length] - sums[begins]


def spread_over_cells(values: np.ndarray, seed: int, start: int) -> np.ndarray:
    """Add noise, uniform on [0, 1), to integers (C, n): dequantised once, with other noise for each `start`."""
    return values + np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, start]))).random(values.shape)


def band_pass(values: np.ndarray, rate: float, band: tuple[float, float], order: int) -> np.ndarray:
    """Apply a Butterworth band-pass along the last axis, forward and backward, so that its gain is |H(f)|^2.

        |H(f)|^2 = 1 / (1 + ((f^2 - low * high) / (f * (high - low)))^(2 order))

    at analogue frequencies, by the bilinear transform. H has `order` exact zeros at 0 Hz and as many at half the rate,
    so the log-determinant of the filter as a map is not bounded from below.

    Args:
        values: (C, n), continuous.
        rate: samples per second.
        band: low and high in Hz, 0 < low < high < rate / 2.
        order: of the low-pass prototype.
    """
    from scipy.signal import butter, sosfiltfilt

    sections = butter(order, band, "bandpass", fs=rate, output="sos")
    # Reflected at both ends for the duration of the slowest oscillation, or as far as the stretch allows.
    return sosfiltfilt(sections, values, axis=-1, padlen=min(round(rate / band[0]), values.shape[-1] - 1))
