"""Assign the events of a source to splits, and write them while the source is streamed."""

from __future__ import annotations

import numpy as np

from harness.core.errors import DataError
from harness.datasets.store import Writer

SEED = 0  # seed of the choice of validation events, and of a subset of the events


def seeded_order(total: int, seed: int = SEED) -> np.ndarray:
    """Return 0..total-1 in an order that is a function of (total, seed) alone."""
    return np.argsort(np.random.Generator(np.random.PCG64(seed)).random(total), kind="stable")


def divide(order: np.ndarray, *counts: int) -> list[np.ndarray]:
    """Return masks of disjoint parts of the order's events: its first counts[0] of them, the next counts[1], etc."""
    ends = np.cumsum(counts)
    masks = []
    for count, end in zip(counts, ends, strict=True):
        mask = np.zeros(len(order), dtype=bool)
        mask[order[end - count : end]] = True
        masks.append(mask)
    return masks


def hold_out(name: str, order: np.ndarray, train: int | None, validation: int) -> list[np.ndarray]:
    """Return masks of train and validation: validation is the first part of the order, train the next (None: all).

    Raises:
        DataError: there are fewer events than requested.
    """
    left = len(order) - validation
    if left < (train or 1):
        what = "all others" if train is None else str(train)
        raise DataError(
            f"{name} holds {len(order)} events; {validation} of validation and {what} of train are more than that. "
            "Ask for fewer"
        )
    held_out, kept = divide(order, validation, left if train is None else train)
    return [kept, held_out]


def first_of(name: str, order: np.ndarray, count: int | None) -> np.ndarray:
    """Return the mask of the first `count` events of the order (None: all).

    Raises:
        DataError: there are fewer, or none at all.
    """
    if len(order) < (count or 1):
        raise DataError(f"{name} holds {len(order)} events; {count or 'at least 1'} asked for")
    return divide(order, len(order) if count is None else count)[0]


class Filling:
    """A new array of the cache that receives the chosen events of a stream, in the stream's order.

    Args:
        writer: creates the array.
        name: name of the array.
        chosen: mask over the events of the stream.
        shape: of one event.
        dtype: dtype of the array.
    """

    def __init__(
        self, writer: Writer, name: str, chosen: np.ndarray, shape: tuple[int, ...], dtype: np.dtype | type
    ) -> None:
        self._chosen = chosen
        self._seen = 0
        self._filled = 0
        self._array = writer.create(name, (int(chosen.sum()), *shape), dtype)

    def put(self, events: np.ndarray) -> None:
        """Write the chosen ones among the next events of the stream, (n, *shape)."""
        mine = events[self._chosen[self._seen : self._seen + len(events)]]
        self._array[self._filled : self._filled + len(mine)] = mine
        self._seen += len(events)
        self._filled += len(mine)
