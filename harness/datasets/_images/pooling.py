"""Average pooling of whole numbers that stays on their lattice."""

from __future__ import annotations

import numpy as np


def pool(images: np.ndarray, factor: int) -> np.ndarray:
    """Return the mean of each factor x factor square of pixels, rounded to the nearest whole number, halves up.

    The sums are computed in int64 and a mean is never above the largest pixel, so nothing wraps around.

    Args:
        images: integers (..., H, W); H and W are multiples of the factor.
        factor: the side of a square, at least 1.

    Returns:
        (..., H / factor, W / factor) of the same dtype.
    """
    *leading, height, width = images.shape
    squares = images.reshape(*leading, height // factor, factor, width // factor, factor)
    area = factor * factor
    return ((2 * squares.sum(axis=(-3, -1), dtype=np.int64) + area) // (2 * area)).astype(images.dtype)
