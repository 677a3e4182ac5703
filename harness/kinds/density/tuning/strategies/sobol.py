"""Points of a scrambled Sobol' sequence.

Of every four points, one is in each quarter of the plane of the first two settings.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache

from harness.kinds.density.tuning.strategy import MOST_SETTINGS, Strategy


class Sobol(Strategy):
    """Quasi-random candidates, all of which run."""

    def points(self, number: int, seed: int) -> Sequence[Sequence[float]]:
        """Return the points of `scipy.stats.qmc.Sobol`."""
        return _points(number, seed)


@cache  # every layer of a suite has the same points
def _points(number: int, seed: int) -> list[list[float]]:
    import numpy as np
    from scipy.stats import qmc  # takes 0.7 s

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The balance properties of Sobol")  # of numbers that are no power of 2
        points: list[list[float]] = qmc.Sobol(MOST_SETTINGS, rng=np.random.default_rng(seed)).random(number).tolist()
    return points
