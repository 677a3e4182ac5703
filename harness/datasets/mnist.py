"""MNIST, from files whose SHA-256 is pinned."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from pydantic import Field

from harness.core.errors import DataError
from harness.core.files import DATA_IN_MEMORY, read_file
from harness.datasets._images.image_files import pool
from harness.datasets._images.image_sets import SplitSizes, Test, Validation, read_at_once
from harness.datasets._store.download import expect, fetch
from harness.datasets._store.store import Store
from harness.datasets.base import Dataset, DatasetInfo, Splits

FOLDER = Path("MNIST", "raw")  # as torchvision has it
IMAGES = 0x0803  # the first four bytes of a file of images: 8-bit values, three axes
URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
SUMS = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
}


class MnistOptions(SplitSizes):
    """The number of images in each split, and their size."""

    counts = (60_000, 10_000)

    validation: Validation = 10_000
    test: Test = 10_000
    pool: Literal[1, 2, 4] = Field(1, description="the side of the squares of pixels that are averaged and rounded")


class Mnist(Dataset, name="mnist"):
    """MNIST: grey digits of 28x28, from files of the data root, packed or not, or downloaded into the cache.

    Args:
        sums: the SHA-256 of the train and the test file, unpacked and packed (.gz).
        url: the folder of the packed files.
    """

    info = DatasetInfo(
        title="MNIST handwritten digits",
        kind="image",
        what=(
            "grey images of 28x28, not padded, 256 levels; 60,000 training images, of which 10,000 (an option) are "
            "set apart for validation by a fixed seed, and 10,000 test images"
        ),
        size="12 MB",
        licence="none stated at the source; usually cited as CC BY-SA 3.0",
        source=f"Y. LeCun, C. Cortes, C. Burges; files at {URL}",
        how_to_get="fetched when first needed; or both files *-images-idx3-ubyte.gz, into MNIST/raw/ of the data root",
    )
    on_disk = True
    options_model = MnistOptions

    def __init__(self, sums: Mapping[str, str] = SUMS, url: str = URL) -> None:
        self._sums, self._url = sums, url

    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return (1, 28, 28), or the shape after pooling."""
        side = 28 // cast(MnistOptions, self.parse(options)).pool
        return (1, side, side)

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, uint8, mapped from the cache unless they are pooled."""
        chosen = cast(MnistOptions, self.parse(options))
        files = [self._file(store, name) for name in self._sums if not name.endswith(".gz")]

        def read() -> tuple[np.ndarray, np.ndarray]:
            contents = [expect(self.name, file, read_file(file, DATA_IN_MEMORY), self._sums) for file in files]
            train, test = map(_images, files, contents)
            return train, test

        key = {"sums": dict(self._sums)}
        splits = read_at_once(store, self.name, "MNIST, 28x28", key, files, (1, 28, 28), read, chosen)
        if chosen.pool == 1:
            return splits
        train, validation, test = (pool(values, chosen.pool) for values in splits.parts().values())
        means = f"; means of {chosen.pool} x {chosen.pool} pixels"
        return replace(splits, train=train, validation=validation, test=test, description=splits.description + means)

    def _file(self, store: Store, name: str) -> Path:
        """Return a file of the data root, packed or not, else the packed one of the cache, downloaded if necessary."""
        packed = f"{name}.gz"
        if store.root is not None:
            for path in (store.root / FOLDER / packed, store.root / FOLDER / name):
                if path.is_file():
                    return path
        by_hand = "or both files *-images-idx3-ubyte.gz into MNIST/raw/ of a data root (--data ROOT)"
        return fetch(store, f"{self.name}/{packed}", self._url + packed, self._sums[packed], by_hand)


def _images(file: Path, content: bytes) -> np.ndarray:
    """Return the images (N, 1, H, W) of an IDX file: its type, its axes, and the values."""
    try:
        content = gzip.decompress(content) if file.suffix == ".gz" else content
        kind, *shape = np.frombuffer(content, ">u4", 4).tolist()
        if kind != IMAGES:
            raise ValueError(f"it begins with {kind:#010x} and not with {IMAGES:#010x}")
        return np.frombuffer(content, np.uint8, offset=16).reshape(shape)[:, None]
    except (EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
        raise DataError(
            f"mnist: {file}: not a whole file of images in MNIST's format ({error}); get it anew"
        ) from error
