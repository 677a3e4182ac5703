"""MNIST and CIFAR-10, from published files whose SHA-256 is pinned.

The batches of CIFAR-10 are pickles, and reading a pickle can run any code: a file is compared with its checksum first.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal, cast

import numpy as np
from pydantic import Field

from harness.core.errors import DataError
from harness.core.files import DATA_IN_MEMORY, read_file
from harness.datasets._images.image_files import pool
from harness.datasets._store.selection import SplitSizes, Test, Validation, seeded_order
from harness.datasets._store.store import Store, Writer, fetch, prepare
from harness.datasets.base import Dataset, DatasetInfo, Splits

VERSION = 3  # of the prepared arrays


@dataclass(frozen=True)
class Pinned:
    """A published file."""

    place: str  # in the data root
    url: str  # the folder that it is downloaded from, with a slash at its end
    sha256: str


IDX_IMAGES = 0x0803  # the first four bytes of a file of images: 8-bit values, three axes
MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST = (
    Pinned(
        "MNIST/raw/train-images-idx3-ubyte.gz",  # as torchvision has it
        MNIST_URL,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    Pinned(
        "MNIST/raw/t10k-images-idx3-ubyte.gz",
        MNIST_URL,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
)
BATCHES = [f"cifar-10-batches-py/{name}" for name in (*(f"data_batch_{at}" for at in range(1, 6)), "test_batch")]
CIFAR10 = (
    Pinned(
        "cifar-10-python.tar.gz",
        "https://www.cs.toronto.edu/~kriz/",
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
)


class MnistOptions(SplitSizes):
    """The number of images in each split, and their size."""

    validation: Validation = Field(10_000, le=59_999)
    test: Test = Field(10_000, le=10_000)
    pool: Literal[1, 2, 4] = Field(1, description="the side of the squares of pixels that are averaged and rounded")


class Mnist(Dataset, name="mnist"):
    """MNIST: grey digits of 28x28, from the packed files of the data root or downloaded into the cache."""

    info = DatasetInfo(
        title="MNIST handwritten digits",
        kind="image",
        what=(
            "grey images of 28x28, not padded, 256 levels; 60,000 training images, of which 10,000 (an option) are "
            "validation, and 10,000 test images"
        ),
        size="12 MB",
        licence="none stated at the source; usually cited as CC BY-SA 3.0",
        source=f"Y. LeCun, C. Cortes, C. Burges; files at {MNIST_URL}",
        how_to_get="fetched when first needed; or both files *-images-idx3-ubyte.gz, into MNIST/raw/ of the data root",
    )
    on_disk = True
    options_model = MnistOptions

    def __init__(self, files: Sequence[Pinned] = MNIST) -> None:
        self._files = files

    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return (1, 28, 28), or the shape after pooling."""
        side = 28 // self.parse(options).pool
        return (1, side, side)

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, uint8, mapped from the cache unless they are pooled."""
        chosen: MnistOptions = self.parse(options)
        splits = _load(store, self.name, "MNIST, 28x28", self._files, (1, 28, 28), _mnist_images, chosen)
        if chosen.pool == 1:
            return splits
        train, validation, test = (pool(values, chosen.pool) for values in splits.parts().values())
        means = f"; means of {chosen.pool} x {chosen.pool} pixels"
        return replace(splits, train=train, validation=validation, test=test, description=splits.description + means)


def _mnist_images(*contents: bytes) -> list[np.ndarray]:
    """Return the images (N, 1, H, W) of packed IDX files: each has its type, its axes, and the values."""
    images = []
    for content in map(gzip.decompress, contents):
        kind, *shape = np.frombuffer(content, ">u4", 4).tolist()
        if kind != IDX_IMAGES:
            raise ValueError(f"it begins with {kind:#010x} and not with {IDX_IMAGES:#010x}")
        images.append(np.frombuffer(content, np.uint8, offset=16).reshape(shape)[:, None])
    return images


class Cifar10Options(SplitSizes):
    """The number of images in each split."""

    validation: Validation = Field(5_000, le=49_999)
    test: Test = Field(10_000, le=10_000)


class Cifar10(Dataset, name="cifar10"):
    """CIFAR-10: colour images of 32x32, from the archive in the data root or downloaded into the cache."""

    info = DatasetInfo(
        title="CIFAR-10 colour images",
        kind="image",
        shape=(3, 32, 32),
        what=(
            "RGB images of 32x32, 256 levels; 50,000 training images, of which 5,000 (an option) are validation, and "
            "10,000 test images"
        ),
        size="163 MB",
        licence="none stated; cite A. Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images",
        source="https://www.cs.toronto.edu/~kriz/cifar.html",
        how_to_get=f"fetched when first needed; or {CIFAR10[0].place}, packed, into the data root",
    )
    on_disk = True
    options_model = Cifar10Options

    def __init__(self, files: Sequence[Pinned] = CIFAR10) -> None:
        self._files = files

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, uint8, mapped from the cache."""
        chosen: Cifar10Options = self.parse(options)
        return _load(store, self.name, "CIFAR-10, 32x32", self._files, (3, 32, 32), _cifar10_images, chosen)


def _cifar10_images(content: bytes) -> list[np.ndarray]:
    """Return the train and test images (N, 3, 32, 32) of the archive, whose batches are unpickled here."""
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        files = [cast(IO[bytes], tar.extractfile(name)) for name in BATCHES]
        *train, test = (pickle.load(file, encoding="latin1")["data"].reshape(-1, 3, 32, 32) for file in files)
    return [np.concatenate(train), test]


def _load(
    store: Store,
    name: str,
    title: str,
    files: Sequence[Pinned],
    shape: tuple[int, ...],
    images: Callable[..., Sequence[np.ndarray]],
    sizes: SplitSizes,
) -> Splits:
    """Return the splits of files of the data root or, if one is missing there, downloaded into the cache.

    `images` returns the train and test images, of a `shape`, of the contents of the files, whose checksums are right.
    Both parts are prepared in an order that depends on a fixed seed, and the splits are cut from them, so that every
    choice of sizes shares one copy, and a smaller choice is the beginning of a larger one.
    """
    sources = [_path(store, name, file) for file in files]

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


def _path(store: Store, name: str, file: Pinned) -> Path:
    """Return the path of a file in the data root or in the cache."""
    path = Path(file.place)
    if store.root is not None and (store.root / path).is_file():
        return store.root / path
    by_hand = f"or at {path} in a data root (--data ROOT)"
    return fetch(store, f"{name}/{path.name}", file.url + path.name, by_hand)
