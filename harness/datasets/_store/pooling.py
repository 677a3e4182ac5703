"""Draw new splits of events: shuffle all of them and cut, or take them by number from several arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_STREAM = 0x5B117  # keeps the draws of splits apart from other draws with the same seed


def split_generator(seed: int, *more: int) -> np.random.Generator:
    """Return the generator of the split with this seed."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([_STREAM, seed, *more])))


def shuffle_and_cut(parts: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
    """Return arrays of the same sizes as the parts, with all their events in a random order."""
    sizes = [len(values) for values in parts]
    order = split_generator(seed).permutation(sum(sizes))
    return [take(parts, numbers) for numbers in np.split(order, np.cumsum(sizes)[:-1])]


def take(parts: Sequence[np.ndarray], numbers: np.ndarray) -> np.ndarray:
    """Return events of the parts by their numbers in the parts one after another, which are not joined in memory."""
    taken = np.empty((len(numbers), *parts[0].shape[1:]), parts[0].dtype)
    first = 0
    for values in parts:
        inside = (first <= numbers) & (numbers < first + len(values))
        taken[inside] = values[numbers[inside] - first]
        first += len(values)
    return taken
