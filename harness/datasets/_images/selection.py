"""Assign the events of a source to splits, and write them: while the source is streamed, or shuffled by a seed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import DataError
from harness.datasets._store.store import Prepared, Store, Writer, prepare
from harness.datasets.base import Splits

SEED = 0  # seed of the choice of validation events, and of a subset of the events
VERSION = 1  # of the arrays of `prepare_images`

Read = Callable[[], tuple[np.ndarray, np.ndarray]]
"""Return the train and test images (N, C, H, W), uint8."""


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

    Fewer events than requested are a DataError that starts with `name`.
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
    """Return the mask of the first `count` events of the order (None: all); fewer, or none, are a DataError."""
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
    """Write one array per split, while the events of a source stream by in blocks of (n, *shape).

    A split takes the events of its mask, in the order of the stream.
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
    """Return the masks of each split, by the part of the source ("train" or "test") that it is taken from.

    `names` of the parts are for messages, `counts` are of their events; for the numbers see `hold_out` and `first_of`.
    """
    kept, held_out = hold_out(names["train"], seeded_order(counts["train"]), train, validation)
    tested = first_of(names["test"], seeded_order(counts["test"]), test)
    return {"train": {"train": kept, "validation": held_out}, "test": {"test": tested}}


def prepare_images(
    store: Store, name: str, key: Mapping[str, Any], sources: Sequence[Path], shape: tuple[int, ...], read: Read
) -> Prepared:
    """Return the arrays "train" and "test", each in an order that depends on a fixed seed; see `prepare`.

    The splits are cut from them when they are loaded, so that every choice of their sizes shares one copy, and a
    smaller choice is the beginning of a larger one.

    Raises:
        DataError: an image is not of `shape`, or not uint8.
    """

    def build(writer: Writer) -> None:
        for part, images in zip(("train", "test"), read(), strict=True):
            if images.shape[1:] != shape or images.dtype != np.uint8:
                raise DataError(
                    f"{name}: {sources[0]}: the {part} images are {images.shape[1:]} of {images.dtype}; "
                    f"they should be {shape} of uint8"
                )
            writer.save(part, images[seeded_order(len(images))])

    return prepare(store, name, {"version": VERSION, **key}, sources, build)


def cut(prepared: Prepared, title: str, validation: int, train: int | None, test: int) -> Splits:
    """Return the first images of "train" for validation, the next (None: the rest) to train on, the first of "test"."""
    images = prepared.array("train")
    return Splits(
        train=images[validation:] if train is None else images[validation : validation + train],
        validation=images[:validation],
        test=prepared.array("test")[:test],
        levels=256,
        description=f"{title}, 256 levels; validation is a part of the training images, chosen by a fixed seed",
        checksum=prepared.checksum,
    )


def count_errors(name: str, validation: int, train: int | None, total: int) -> list[tuple[str, str]]:
    """Return the fault of splits that request more training images than exist, as in `Dataset.option_errors`."""
    if validation + (train or 1) <= total:
        return []
    asked = f"validation = {validation}" if train is None else f"validation = {validation} and train = {train}"
    rule = f"{name}: {asked}: both splits are taken from {total} training images, and none may be empty; ask for fewer"
    return [("validation" if train is None else "train", rule)]
