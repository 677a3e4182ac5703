"""The two forms in which ImageNet at 32x32 is published, each as a stream of images in a fixed order."""

from __future__ import annotations

import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np

from harness.core.errors import DataError, DataMissing
from harness.datasets._images.image_files import read_image
from harness.datasets._store.store import CHUNK
from harness.datasets._values.npz_stream import StoredArray, open_npz, reading

SHAPE = (3, 32, 32)
DIM = 3 * 32 * 32


class Stream(ABC):
    """The images of one part, train or validation, in a fixed order.

    Attributes:
        name: name of the source, for messages.
        files: the files whose content determines the result, for `prepare`.
        stamp: other signs of a change of the source, as JSON values, for the key of the prepared arrays.
    """

    name: str
    files: list[Path]
    stamp: dict[str, Any]

    @abstractmethod
    def count(self, scratch: Path) -> int:
        """Return the number of images; files unpacked for counting are temporarily in the folder `scratch`."""

    @abstractmethod
    def blocks(self, scratch: Path) -> Iterator[np.ndarray]:
        """Yield all images in order, some at a time, uint8 (n, 3, 32, 32)."""


class PngFolder(Stream):
    """A folder of PNG files of 32x32, in the order of their names.

    A change is detected if files were added, removed or renamed: checking each of a million files takes
    too long for every trial.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = f"{name}: {folder}"
        self.files = []
        self._set, self._folder = name, folder
        try:
            self.stamp = {"place": str(folder), "changed": folder.stat().st_mtime_ns}
        except OSError as error:
            raise DataError(f"{self.name}: cannot be read ({error.strerror or error})") from error

    @cached_property
    def _names(self) -> list[str]:
        try:
            found = [path.name for path in self._folder.glob("[!.]*.png")]
        except OSError as error:
            raise DataError(f"{self.name}: cannot be read ({error.strerror or error})") from error
        if not found:
            raise DataError(f"{self.name}: has no PNG files; unpack the archive of this name into it")
        return sorted(found)

    def count(self, scratch: Path) -> int:
        """Return the number of PNG files."""
        return len(self._names)

    def blocks(self, scratch: Path) -> Iterator[np.ndarray]:
        """Yield all images, one at a time."""
        for one in self._names:
            yield read_image(self._set, self._folder / one, SHAPE)[None]


class NpzBatches(Stream):
    """Batches `data` (N, 3072), in files of a folder or of a zip archive, which is unpacked one batch at a time.

    Args:
        name: name of the data set, for messages.
        place: the folder or the archive.
        members: the file names of the batches, in order; in an archive they may be in a folder.

    Raises:
        DataMissing: a batch is missing.
        DataError: the file is not an archive, or contains names outside it.
    """

    def __init__(self, name: str, place: Path, members: list[str]) -> None:
        self.name = f"{name}: {place}"
        self.stamp = {}
        self._place, self._members = place, members
        self.files = [place] if place.is_file() else [place / member for member in members]
        if place.is_dir():
            for path in self.files:
                if not path.is_file():
                    raise DataMissing(f"{self.name}: has no {path.name}; unpack the whole archive")

    def count(self, scratch: Path) -> int:
        """Return the number of images, from the headers of the batches."""
        return sum(len(batch) for batch in self._batches(scratch))

    def blocks(self, scratch: Path) -> Iterator[np.ndarray]:
        """Yield all images, some megabytes at a time."""
        for batch in self._batches(scratch):
            for block in batch.blocks():
                yield block.reshape(-1, *SHAPE)

    def _batches(self, scratch: Path) -> Iterator[StoredArray]:
        if self._place.is_dir():
            for path in self.files:
                with open_npz(path, f"{self.name}: {path.name}") as npz:
                    yield _checked(npz.array("data"))
            return
        with reading(self.name):
            archive = zipfile.ZipFile(self._place)
        with archive:
            inside = self._inside(archive)
            for member in self._members:
                label = f"{self.name}: {member}"
                # A batch is itself an archive, whose end is read first: inside the outer archive that is slow.
                with tempfile.TemporaryFile(dir=scratch) as file:
                    _unpack(archive, inside[member], file, label)
                    with open_npz(file, label) as npz:
                        yield _checked(npz.array("data"))

    def _inside(self, archive: zipfile.ZipFile) -> dict[str, str]:
        """Return the path of each batch in the archive."""
        found: dict[str, str] = {}
        for full in archive.namelist():
            path = PurePosixPath(full)
            if path.is_absolute() or ".." in path.parts or "\\" in full:
                raise DataError(f"{self.name}: holds {full!r}, a path that leads out of it; get the file again")
            if path.name in self._members and path.name in found:
                raise DataError(f"{self.name}: holds {path.name} twice, as {found[path.name]} and {full}")
            found[path.name] = full
        for member in self._members:
            if member not in found:
                raise DataMissing(f"{self.name}: has no {member}; get the whole archive")
        return found


def _unpack(archive: zipfile.ZipFile, member: str, target: IO[bytes], label: str) -> None:
    """Copy a member of an archive; report faults of the archive as data errors, and raise those of the target."""
    with reading(label):
        source = archive.open(member)
    with source:
        while True:
            with reading(label):
                chunk = source.read(CHUNK)
            if not chunk:
                return
            target.write(chunk)


def _checked(batch: StoredArray) -> StoredArray:
    if batch.event != (DIM,) or batch.dtype != np.uint8:
        raise DataError(f"{batch.name} holds rows {batch.event} of {batch.dtype}; they should be {DIM} values of uint8")
    return batch
