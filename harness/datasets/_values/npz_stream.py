"""Read arrays from .npz archives, some events at a time: archives may exceed the memory, and none is unpickled.

An .npz file is a zip archive of .npy files; each of those is a short header (shape, dtype) and the bare values. So
an array can be read from front to back, whether it is compressed or not, without ever being whole in memory.
"""

from __future__ import annotations

import contextlib
import math
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from harness.core.errors import DataError
from harness.core.files import DATA, open_file
from harness.core.provenance.machine import available_memory
from harness.core.run_options import shown_bytes

BLOCK = 8 << 20  # bytes of a block of events, about
PER_EVENT = 32  # bytes that the choice of the splits takes for each event
MEMORY_SHARE = 0.25  # of the available memory, for what has to be in memory at once
HEADER = 10_000  # bytes, as numpy limits it
LABEL = 1 << 10  # bytes of a text
NUMBERS = "uif"  # kinds of dtype: unsigned, signed, floating


@contextlib.contextmanager
def reading(name: str, hint: str = "get the file again") -> Iterator[None]:
    """Turn any exception from reading a damaged archive into a DataError that starts with `name`."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # zipfile, its decompressors and numpy raise many kinds on a damaged file
        raise DataError(
            f"{name}: cannot be read ({str(error) or type(error).__name__}): damaged, truncated, or not of this "
            f"form; {hint}"
        ) from error


class Npz:
    """An open .npz archive, called `name` in messages, with the names of its arrays, `keys`."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self.archive, self.name = archive, name
        self.keys = [member.removesuffix(".npy") for member in archive.namelist() if member.endswith(".npy")]

    def array(self, key: str) -> StoredArray:
        """Open one array: its header is read and checked, its values are not.

        Raises:
            DataError: there is no such array, its header is damaged, it holds no plain numbers, or too much of it would
            have to be in memory at once.
        """
        if key not in self.keys:
            raise DataError(f"{self.name}: has no array {key!r}; it has {', '.join(self.keys) or 'none'}")
        name = f"{self.name}: {key}"
        info = self.archive.getinfo(f"{key}.npy")
        with reading(name), self.archive.open(info) as file:
            shape, fortran, dtype = npy_header(file)
            start = file.tell()
        if dtype.kind not in NUMBERS or dtype.itemsize > 8:
            raise DataError(f"{name} holds {dtype}; it must hold integers or floating-point numbers of at most 64 bits")
        if len(shape) < 2:
            raise DataError(f"{name} has shape {shape}; the first axis counts the events, the others are the event's")
        size = start + math.prod(shape) * dtype.itemsize
        if size != info.file_size:
            raise DataError(
                f"{name}: its header announces {size} bytes and {info.file_size} are there: damaged or truncated; "
                "write the file again"
            )
        at_once = (size if fortran else size // max(1, shape[0])) + PER_EVENT * shape[0]
        if at_once > MEMORY_SHARE * available_memory():
            what, hint = f"{shape[0]:,} events", "fewer or smaller events"
            if fortran:
                what, hint = "in Fortran order, in which it cannot be read in parts", "numpy.ascontiguousarray of it"
            raise DataError(
                f"{name} unpacks to {shown_bytes(size)}, {what}, of which {shown_bytes(at_once)} would be in memory at "
                f"once; data sets take at most {MEMORY_SHARE:.0%} of the available memory: write {hint}"
            )
        return StoredArray(self, info, name, start, shape, dtype, fortran)

    def labels(self, key: str, count: int) -> np.ndarray:
        """Return the array (count,) of numbers or texts, one for each event; raise DataError if it is another."""
        if key not in self.keys:
            raise DataError(f"{self.name}: has no array {key!r}; it has {', '.join(self.keys) or 'none'}")
        with reading(f"{self.name}: {key}"), self.archive.open(f"{key}.npy") as file:
            shape, _, dtype = npy_header(file)
        if shape != (count,) or dtype.kind not in f"{NUMBERS}US" or dtype.itemsize > LABEL:
            rule = f"it must be a number or a short text for each of {count:,} events"
            raise DataError(f"{self.name}: {key} is {dtype} of shape {shape}; {rule}")
        with reading(f"{self.name}: {key}"), self.archive.open(f"{key}.npy") as file:
            return np.lib.format.read_array(file, allow_pickle=False)


@dataclass(frozen=True)
class StoredArray:
    """An array in an archive, (N, *event)."""

    npz: Npz
    info: zipfile.ZipInfo  # its member of the archive
    name: str  # of file and array, for messages
    start: int  # where the values begin in the member
    shape: tuple[int, ...]  # (N, *event)
    dtype: np.dtype[Any]  # of the values, in the byte order of the file
    fortran: bool  # the first axis varies fastest; such an array can only be read whole

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def event(self) -> tuple[int, ...]:
        """The shape of one event, as it is stored."""
        return self.shape[1:]

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all events in order, some at a time, read-only; the archive's checksum is verified at the end.

        Raises:
            DataError: the values end early, or their checksum in the archive is wrong.
        """
        size = math.prod(self.event) * self.dtype.itemsize
        rows = len(self) if self.fortran else max(1, BLOCK // max(size, 1))
        with reading(self.name):
            file = self.npz.archive.open(self.info)
        with file:
            with reading(self.name):
                _exactly(file, self.start)
            for start in range(0, len(self), max(rows, 1)):
                count = min(rows, len(self) - start)
                with reading(self.name):
                    values = np.frombuffer(_exactly(file, count * size), self.dtype)
                yield values.reshape((count, *self.event), order="F" if self.fortran else "C")


@contextlib.contextmanager
def open_npz(file: Path, name: str) -> Iterator[Npz]:
    """Open an .npz file, called `name` in messages.

    Raises:
        OSError: it is no regular file, or cannot be opened.
        DataError: it is not a zip archive, its end (where a zip archive has its contents) is missing, or two members
            have one name.
    """
    with open_file(file, DATA) as opened, contextlib.ExitStack() as later:
        with reading(name, "it must be an .npz file, as numpy.savez writes it"):
            archive = later.enter_context(zipfile.ZipFile(opened))
        if twice := [member for member, count in Counter(archive.namelist()).items() if count > 1]:
            raise DataError(f"{name}: has two members {twice[0]}; which one is meant is unknown: write the file again")
        yield Npz(archive, name)


def _exactly(file: IO[bytes], count: int) -> bytes:
    """Return the next `count` bytes."""
    content = file.read(count)
    if len(content) != count:
        raise EOFError(f"{count - len(content)} bytes are missing at the end")
    return content


def npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, Fortran order and dtype of an .npy file; the file is left at the first value.

    Raises:
        ValueError: it is damaged, or its version of the format is for records with named fields.
    """
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file, HEADER)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file, HEADER)
    raise ValueError(f"version {version} of the .npy format is for records with named fields")
