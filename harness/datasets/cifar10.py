"""CIFAR-10, from the published archive, whose SHA-256 is pinned.

The batches in it are pickles, and reading a pickle can run any code: the archive is compared with its checksum first.
"""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Mapping
from typing import IO, Any, cast

import numpy as np
from pydantic import Field

from harness.datasets._images.image_sets import Pinned, SplitSizes, Test, Validation, read_pinned
from harness.datasets._store.store import Store
from harness.datasets.base import Dataset, DatasetInfo, Splits

SHAPE = (3, 32, 32)
FOLDER = "cifar-10-batches-py"  # in the archive
BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
ARCHIVE = Pinned(
    "cifar-10-python.tar.gz",
    "https://www.cs.toronto.edu/~kriz/",
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
)


class Cifar10Options(SplitSizes):
    """The number of images in each split."""

    validation: Validation = Field(5_000, le=49_999)
    test: Test = Field(10_000, le=10_000)


class Cifar10(Dataset, name="cifar10"):
    """CIFAR-10: colour images of 32x32, from the archive in the data root or downloaded into the cache."""

    info = DatasetInfo(
        title="CIFAR-10 colour images",
        kind="image",
        shape=SHAPE,
        what=(
            "RGB images of 32x32, 256 levels; 50,000 training images, of which 5,000 (an option) are validation, and "
            "10,000 test images"
        ),
        size="163 MB",
        licence="none stated; cite A. Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images",
        source="https://www.cs.toronto.edu/~kriz/cifar.html",
        how_to_get=f"fetched when first needed; or {ARCHIVE.place}, packed, into the data root",
    )
    on_disk = True
    options_model = Cifar10Options

    def __init__(self, archive: Pinned = ARCHIVE) -> None:
        self._archive = archive

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, uint8, mapped from the cache."""
        chosen: Cifar10Options = self.parse(options)
        return read_pinned(store, self.name, "CIFAR-10, 32x32", [self._archive], SHAPE, _images, chosen)


def _images(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return the train and test images (N, 3, 32, 32) of the archive, whose batches are unpickled here."""
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        files = [cast(IO[bytes], tar.extractfile(f"{FOLDER}/{name}")) for name in BATCHES]
        *train, test = (pickle.load(file, encoding="latin1")["data"].reshape(-1, *SHAPE) for file in files)
    return np.concatenate(train), test
