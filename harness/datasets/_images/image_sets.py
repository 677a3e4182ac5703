"""Published sets of images with the parts "train" and "test", and splits of files that fit into memory.

Validation is a part of the training images, chosen by a fixed seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from harness.core.errors import DataError
from harness.core.files import DATA_IN_MEMORY, read_file
from harness.core.settings import Count, Settings
from harness.datasets._store.selection import seeded_order
from harness.datasets._store.store import Store, Writer, fetch, prepare
from harness.datasets.base import Splits

VERSION = 3  # of the prepared arrays

Validation = Annotated[Count, Field(description="the number of training images that are set apart for validation")]
Test = Annotated[Count, Field(description="the number of test images that are used")]


class SplitSizes(Settings):
    """The number of images in each split."""

    validation: Validation
    train: Count | None = Field(None, description="the number of the other training images that are used; null: all")
    test: Count | None = Field(None, description="the number of test images that are used; null: all")

    @property
    def limits(self) -> tuple[int | None, int, int | None]:
        """The numbers of train, validation and test images."""
        return self.train, self.validation, self.test


@dataclass(frozen=True)
class Pinned:
    """A published file."""

    place: str  # in the data root
    url: str  # the folder that it is downloaded from, with a slash at its end
    sha256: str


def read_pinned(
    store: Store,
    name: str,
    title: str,
    files: Sequence[Pinned],
    shape: tuple[int, ...],
    images: Callable[..., tuple[np.ndarray, np.ndarray]],
    sizes: SplitSizes,
) -> Splits:
    """Return the splits of published files of the data root or, if one is missing there, downloaded into the cache.

    Both parts are prepared in an order that depends on a fixed seed, and the splits are cut from them, so that every
    choice of sizes shares one copy, and a smaller choice is the beginning of a larger one.

    Args:
        store, name: see `prepare`.
        title: the beginning of the description.
        files: the files.
        shape, sizes: of an image, and of the splits.
        images: returns the train and test images of the contents of the files, whose checksums are right.

    Raises:
        DataMissing: a file is missing and cannot be downloaded.
        DataError: a file has another checksum, or `images` fails.
    """
    sources = [_pinned_file(store, name, file) for file in files]

    def build(writer: Writer) -> None:
        contents = []
        for file, path in zip(files, sources, strict=True):
            contents.append(read_file(path, DATA_IN_MEMORY))
            if (actual := hashlib.sha256(contents[-1]).hexdigest()) != file.sha256:
                raise DataError(
                    f"{name}: {path}: the file's SHA-256 is {actual}, the right one is {file.sha256}. Delete the file "
                    "and get it anew"
                )
        try:
            for part, values in zip(("train", "test"), images(*contents), strict=True):
                if values.shape[1:] != shape or values.dtype != np.uint8:
                    raise ValueError(f"images of {values.shape[1:]} of {values.dtype}, not {shape} of uint8")
                writer.save(part, values[seeded_order(len(values))])
        except Exception as error:  # decompressors and pickles may raise anything
            places = ", ".join(map(str, sources))
            raise DataError(
                f"{name}: {places}: not of the published form ({type(error).__name__}: {error}); get it anew"
            ) from error

    key = {"version": VERSION, "sums": [file.sha256 for file in files]}
    prepared = prepare(store, name, key, sources, build)
    train, validation, test = sizes.limits
    ordered = prepared.array("train")
    rest = ordered[validation:]
    if len(rest) < (train or 1):
        raise DataError(f"{name}: {len(rest)} images are there for train beside validation; {train or 1} asked for")
    return Splits(
        train=rest[:train],
        validation=ordered[:validation],
        test=prepared.array("test")[:test],
        levels=256,
        description=f"{title}, 256 levels; validation is a part of the training images, chosen by a fixed seed",
        checksum=prepared.checksum,
    )


def _pinned_file(store: Store, name: str, file: Pinned) -> Path:
    """Return the path of a file in the data root or in the cache."""
    path = Path(file.place)
    if store.root is not None and (store.root / path).is_file():
        return store.root / path
    by_hand = f"or at {path} in a data root (--data ROOT)"
    return fetch(store, f"{name}/{path.name}", file.url + path.name, by_hand)
