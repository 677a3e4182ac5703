"""CIFAR-10, from files whose SHA-256 is pinned.

The batches are pickles, and reading a pickle can run any code: each is compared with its checksum first.
"""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from harness.core.errors import DataError, DataMissing
from harness.core.files import DATA_IN_MEMORY, read_file
from harness.datasets._images.image_sets import SplitSizes, Test, Validation, read_at_once
from harness.datasets._store.download import expect, fetch
from harness.datasets._store.store import Store
from harness.datasets.base import Dataset, DatasetInfo, Splits

SHAPE = (3, 32, 32)
ARCHIVE, FOLDER = "cifar-10-python.tar.gz", "cifar-10-batches-py"
URL = "https://www.cs.toronto.edu/~kriz/"
SUMS = {
    ARCHIVE: "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    "data_batch_1": "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd",
    "data_batch_2": "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8",
    "data_batch_3": "0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9",
    "data_batch_4": "3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b",
    "data_batch_5": "d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154",
    "test_batch": "f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831",
}


class Cifar10Options(SplitSizes):
    """The number of images in each split."""

    counts = (50_000, 10_000)

    validation: Validation = 5_000
    test: Test = 10_000


class Cifar10(Dataset, name="cifar10"):
    """CIFAR-10: colour images of 32x32, from the data root, packed or not, or downloaded into the cache.

    Args:
        sums: the SHA-256 of the archive and of each file in it that is read.
        url: the folder of the archive.
    """

    info = DatasetInfo(
        title="CIFAR-10 colour images",
        kind="image",
        what=(
            "RGB images of 32x32, 256 levels; 50,000 training images, of which 5,000 (an option) are set apart for "
            "validation by a fixed seed, and 10,000 test images"
        ),
        size="163 MB",
        licence="none stated; cite A. Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images",
        source="https://www.cs.toronto.edu/~kriz/cifar.html",
        how_to_get=f"fetched when first needed; or {ARCHIVE}, packed or unpacked, into the data root",
    )
    on_disk = True
    options_model = Cifar10Options

    def __init__(self, sums: Mapping[str, str] = SUMS, url: str = URL) -> None:
        self._sums, self._url = sums, url

    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return (3, 32, 32)."""
        return SHAPE

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, uint8, mapped from the cache."""
        chosen = cast(Cifar10Options, self.parse(options))
        names = [name for name in self._sums if name != ARCHIVE]
        sources = self._sources(store, names)

        def read() -> tuple[np.ndarray, np.ndarray]:
            contents = {str(file): read_file(file, DATA_IN_MEMORY) for file in sources}
            if sources[0].name == ARCHIVE:
                contents = _unpacked(
                    sources[0], expect(self.name, sources[0], contents[str(sources[0])], self._sums), names
                )
            *train, test = (
                _images(place, expect(self.name, place, content, self._sums, name))
                for name, (place, content) in zip(names, contents.items(), strict=True)
            )
            return np.concatenate(train), test

        key = {"sums": dict(self._sums)}
        return read_at_once(store, self.name, "CIFAR-10, 32x32", key, sources, SHAPE, read, chosen)

    def _sources(self, store: Store, names: list[str]) -> list[Path]:
        """Return the batches or the archive of the data root, else the archive of the cache, fetched if necessary."""
        if store.root is not None:
            folder, archive = store.root / FOLDER, store.root / ARCHIVE
            if archive.is_file():
                return [archive]
            if folder.is_dir():
                for name in names:
                    if not (folder / name).is_file():
                        raise DataMissing(f"cifar10: {folder / name}: no such file; unpack {ARCHIVE} again")
                return [folder / name for name in names]
        by_hand = "or into a data root (--data ROOT)"
        return [fetch(store, f"{self.name}/{ARCHIVE}", self._url + ARCHIVE, self._sums[ARCHIVE], by_hand)]


def _unpacked(archive: Path, packed: bytes, names: list[str]) -> dict[str, bytes]:
    """Return the content of each of the named files in the archive, by its place in messages."""
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
            members = {name: tar.extractfile(f"{FOLDER}/{name}") for name in names}
            if None in members.values():
                raise KeyError("a batch is not a file")
            return {f"{archive}, {name} in it": file.read() for name, file in members.items() if file is not None}
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError, KeyError) as error:
        raise DataError(f"cifar10: {archive}: not the whole archive ({error}); get it anew") from error


def _images(place: str, content: bytes) -> np.ndarray:
    """Return the images (N, 3, 32, 32) of a batch, which is unpickled here."""
    try:
        return pickle.loads(content, encoding="latin1")["data"].reshape(-1, *SHAPE)
    except Exception as error:  # another pickle may raise anything
        raise DataError(f"cifar10: {place}: not one of CIFAR-10's batches ({type(error).__name__}: {error})") from error
