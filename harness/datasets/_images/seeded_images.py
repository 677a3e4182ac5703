"""Image sets whose source has a train and a test part: shuffled by a seed once, then cut into three splits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import DataError
from harness.datasets._images.selection import seeded_order
from harness.datasets._store.store import Prepared, Store, Writer, prepare
from harness.datasets.base import Splits

VERSION = 1  # of the prepared arrays

Read = Callable[[Path], tuple[np.ndarray, np.ndarray]]
"""Given a scratch folder, the train and test images (N, C, H, W), uint8."""


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
        with writer.scratch() as scratch:
            for part, images in zip(("train", "test"), read(scratch), strict=True):
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
