"""MNIST, from the published files, whose SHA-256 is pinned."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import Field

from harness.datasets._images.image_files import pool
from harness.datasets._images.image_sets import Pinned, SplitSizes, Test, Validation, read_pinned
from harness.datasets._store.store import Store
from harness.datasets.base import Dataset, DatasetInfo, Splits

IMAGES = 0x0803  # the first four bytes of a file of images: 8-bit values, three axes
URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FILES = (
    Pinned(
        "MNIST/raw/train-images-idx3-ubyte.gz",  # as torchvision has it
        URL,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    Pinned(
        "MNIST/raw/t10k-images-idx3-ubyte.gz",
        URL,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
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
        source=f"Y. LeCun, C. Cortes, C. Burges; files at {URL}",
        how_to_get="fetched when first needed; or both files *-images-idx3-ubyte.gz, into MNIST/raw/ of the data root",
    )
    on_disk = True
    options_model = MnistOptions

    def __init__(self, files: Sequence[Pinned] = FILES) -> None:
        self._files = files

    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return (1, 28, 28), or the shape after pooling."""
        side = 28 // self.parse(options).pool
        return (1, side, side)

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, uint8, mapped from the cache unless they are pooled."""
        chosen: MnistOptions = self.parse(options)
        splits = read_pinned(store, self.name, "MNIST, 28x28", self._files, (1, 28, 28), _parts, chosen)
        if chosen.pool == 1:
            return splits
        train, validation, test = (pool(values, chosen.pool) for values in splits.parts().values())
        means = f"; means of {chosen.pool} x {chosen.pool} pixels"
        return replace(splits, train=train, validation=validation, test=test, description=splits.description + means)


def _parts(*contents: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return the images of the train and the test file."""
    train, test = map(_images, contents)
    return train, test


def _images(content: bytes) -> np.ndarray:
    """Return the images (N, 1, H, W) of a packed IDX file: its type, its axes, and the values."""
    content = gzip.decompress(content)
    kind, *shape = np.frombuffer(content, ">u4", 4).tolist()
    if kind != IMAGES:
        raise ValueError(f"it begins with {kind:#010x} and not with {IMAGES:#010x}")
    return np.frombuffer(content, np.uint8, offset=16).reshape(shape)[:, None]
