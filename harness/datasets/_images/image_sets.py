"""Published sets of images with the parts "train" and "test", read at once or streamed, and their splits.

Validation is a part of the training images, chosen by a fixed seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from harness.core.errors import DataError
from harness.core.files import DATA_IN_MEMORY, read_file
from harness.core.settings import Count, Settings
from harness.datasets._store.download import fetch, wrong_sum
from harness.datasets._store.selection import HELD_OUT_PART, fill, first_of, hold_out, seeded_order
from harness.datasets._store.store import Store, Writer, prepare
from harness.datasets.base import Splits

VERSION = 2  # of the prepared arrays

Validation = Annotated[Count, Field(description="the number of training images that are set apart for validation")]
Test = Annotated[Count, Field(description="the number of test images that are used")]


class SplitSizes(Settings):
    """The number of images in each split.

    Attributes:
        counts: images of train and test, where they are known before the files are.
    """

    counts: ClassVar[tuple[int, int] | None] = None

    validation: Validation
    train: Count | None = Field(None, description="the number of the other training images that are used; null: all")
    test: Count | None = Field(None, description="the number of test images that are used; null: all")

    @field_validator("validation", "train", "test")
    @classmethod
    def _at_most_all(cls, value: int | None, info: ValidationInfo) -> int | None:
        if cls.counts is not None and value is not None:
            train, test = cls.counts
            limits = {"validation": train - 1, "train": train - info.data.get("validation", 0), "test": test}
            if value > (most := limits[str(info.field_name)]):
                why = "" if info.field_name == "test" else f", as train and validation share {train} images"
                raise PydanticCustomError("sizes", "should be at most {most}{why}", {"most": most, "why": why})
        return value


def read_at_once(
    store: Store,
    name: str,
    title: str,
    key: Mapping[str, Any],
    sources: Sequence[Path],
    shape: tuple[int, ...],
    read: Callable[[], tuple[np.ndarray, np.ndarray]],
    sizes: SplitSizes,
) -> Splits:
    """Return the splits of a set that fits into memory.

    Both parts are prepared in an order that depends on a fixed seed, and the splits are cut from them, so that every
    choice of sizes shares one copy, and a smaller choice is the beginning of a larger one.

    Args:
        store, name, sources: see `prepare`.
        title: the beginning of the description.
        key: further entries of the key of the prepared arrays.
        shape, sizes: of an image, and of the splits.
        read: returns the train and test images (N, *shape), uint8.

    Raises:
        DataError: an image is not of `shape` or not uint8, or there are fewer images than asked for.
    """

    def build(writer: Writer) -> None:
        for part, images in zip(("train", "test"), read(), strict=True):
            if images.shape[1:] != shape or images.dtype != np.uint8:
                raise DataError(
                    f"{name}: {sources[0]}: the {part} images are {images.shape[1:]} of {images.dtype}; "
                    f"they should be {shape} of uint8"
                )
            writer.save(part, images[seeded_order(len(images))])

    prepared = prepare(store, name, {"version": VERSION, **key}, sources, build)
    images, test = prepared.array("train"), prepared.array("test")
    validation = sizes.validation or max(1, len(images) // HELD_OUT_PART)
    hold_out(f"{name}: train", np.arange(len(images)), sizes.train, validation)
    first_of(f"{name}: test", np.arange(len(test)), sizes.test, "test")
    return Splits(
        train=images[validation : None if sizes.train is None else validation + sizes.train],
        validation=images[:validation],
        test=test[: sizes.test],
        levels=256,
        description=f"{title}, 256 levels; validation is a part of the training images, chosen by a fixed seed",
        checksum=prepared.checksum,
    )


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

    Args:
        store, name, title, shape, sizes: as for `read_at_once`.
        files: the files.
        images: returns the train and test images of the contents of the files, whose checksums are right.

    Raises:
        DataMissing: a file is missing and cannot be downloaded.
        DataError: a file has another checksum, or `images` fails.
    """
    sources = [_pinned_file(store, name, file) for file in files]

    def read() -> tuple[np.ndarray, np.ndarray]:
        contents = []
        for file, path in zip(files, sources, strict=True):
            contents.append(read_file(path, DATA_IN_MEMORY))
            if (actual := hashlib.sha256(contents[-1]).hexdigest()) != file.sha256:
                raise wrong_sum(name, path, actual, file.sha256, "Delete the file and get it anew")
        try:
            return images(*contents)
        except Exception as error:  # decompressors and pickles may raise anything
            places = ", ".join(map(str, sources))
            raise DataError(
                f"{name}: {places}: not of the published form ({type(error).__name__}: {error}); get it anew"
            ) from error

    return read_at_once(store, name, title, {"sums": [file.sha256 for file in files]}, sources, shape, read, sizes)


def _pinned_file(store: Store, name: str, file: Pinned) -> Path:
    """Return the path of a file in the data root or in the cache."""
    path = Path(file.place)
    if store.root is not None and (store.root / path).is_file():
        return store.root / path
    by_hand = f"or at {path} in a data root (--data ROOT)"
    return fetch(store, f"{name}/{path.name}", file.url + path.name, file.sha256, by_hand)


@dataclass(frozen=True)
class Stream:
    """A part of a set that is never in memory as a whole."""

    name: str  # in messages
    count: Callable[[], int]  # returns the number of images
    blocks: Callable[[], Iterator[np.ndarray]]  # yields all images in order, uint8 (n, C, H, W)


def streamed(
    store: Store,
    name: str,
    key: Mapping[str, Any],
    sources: Sequence[Path],
    parts: Mapping[str, Stream],
    shape: tuple[int, ...],
    sizes: SplitSizes,
    describe: Callable[[tuple[int, ...]], str],
) -> Splits:
    """Return the splits of a set whose images stream by once, each split in the order of the source.

    `parts` are "train" and "test", and `describe` gets their numbers of images; for the rest see `read_at_once`.
    """

    def build(writer: Writer) -> None:
        counts = {part: stream.count() for part, stream in parts.items()}
        train = hold_out(parts["train"].name, seeded_order(counts["train"]), sizes.train, sizes.validation)
        test = first_of(parts["test"].name, seeded_order(counts["test"]), sizes.test, "test")
        fill(writer, train, shape, np.uint8, parts["train"].blocks())
        fill(writer, test, shape, np.uint8, parts["test"].blocks())
        writer.notes = {"levels": 256, "description": describe(tuple(counts.values()))}

    key = {"version": VERSION, **sizes.model_dump(mode="json"), **key}
    return Splits.of(prepare(store, name, key, sources, build))


def made_of(counts: tuple[int, ...], published: tuple[int, ...]) -> str:
    """Return a clause with the numbers of images, where they are not the published ones; else an empty text."""
    return "" if counts == published else f", made of {counts[0]:,} and {counts[1]:,} images only"
