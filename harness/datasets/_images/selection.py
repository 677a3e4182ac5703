"""Assign the events of a source to splits, and write them while the source is streamed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from harness.core.errors import DataError
from harness.datasets._store.store import Writer

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


def fill(
    writer: Writer,
    masks: Mapping[str, np.ndarray],
    shape: tuple[int, ...],
    dtype: np.dtype | type,
    blocks: Iterable[np.ndarray],
) -> None:
    """Write one array per split of the cache, while the events of a source stream by.

    Args:
        writer: creates the arrays.
        masks: of each split, over the events of the stream; the split takes them in the stream's order.
        shape: of one event.
        dtype: of the arrays.
        blocks: the events, (n, *shape) at a time.
    """
    arrays = {split: writer.create(split, (int(mask.sum()), *shape), dtype) for split, mask in masks.items()}
    filled = dict.fromkeys(masks, 0)
    seen = 0
    for block in blocks:
        for split, mask in masks.items():
            chosen = block[mask[seen : seen + len(block)]]
            arrays[split][filled[split] : filled[split] + len(chosen)] = chosen
            filled[split] += len(chosen)
        seen += len(block)


def masks_of(
    names: Mapping[str, str], counts: Mapping[str, int], train: int | None, validation: int, test: int | None
) -> dict[str, dict[str, np.ndarray]]:
    """Return the masks of each split, by the part of the source that it is taken from.

    Args:
        names: of the parts "train" and "test", for messages.
        counts: of their events.
        train: how many events of the part "train" are trained on; None: all but the validation events.
        validation: how many events of the part "train" are set apart.
        test: how many events of the part "test" are used; None: all.

    Raises:
        DataError: there are fewer events than asked for.
    """
    kept, held_out = hold_out(names["train"], seeded_order(counts["train"]), train, validation)
    tested = first_of(names["test"], seeded_order(counts["test"]), test)
    return {"train": {"train": kept, "validation": held_out}, "test": {"test": tested}}
