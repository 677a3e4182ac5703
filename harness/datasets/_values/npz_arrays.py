"""Read arrays of .npz archives by numpy.load, and .npy files, which are mapped into memory; nothing is unpickled."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.core.errors import DataError
from harness.core.files import DATA, open_file
from harness.core.provenance.environment import available_memory
from harness.core.run_options import shown_bytes

MEMORY_SHARE = 0.5  # of the available memory, for what has to be in memory at once
LABEL = 1 << 10  # bytes of a text
SIGNATURES = (b"PK", b"\x93NUMPY")  # of the beginning of an .npz and a .npy file
NUMBERS = "uif"  # kinds of dtype: unsigned, signed, floating


@contextlib.contextmanager
def reading(name: str, hint: str = "get the file again") -> Iterator[None]:
    """Turn any exception from reading a damaged archive into a DataError that starts with `name`."""
    try:
        yield
    except Exception as error:  # zipfile, its decompressors and numpy raise many kinds on a damaged file
        raise DataError(
            f"{name}: cannot be read ({str(error) or type(error).__name__}): damaged, truncated, or not of this "
            f"form; {hint}"
        ) from error


@dataclass(frozen=True)
class Npz:
    """An open .npz archive, called `name` in messages; a .npy file is one array `x`."""

    name: str
    content: Mapping[str, np.ndarray]  # of an archive, which reads an array when it is asked for

    @property
    def keys(self) -> list[str]:
        """The names of the arrays."""
        return list(self.content)

    def array(self, key: str) -> np.ndarray:
        """Return an array of numbers (N, *event) in the byte order of the machine; raise DataError if it is another."""
        values = self._read(key)
        name = f"{self.name}: {key}"
        if values.dtype.kind not in NUMBERS or values.dtype.itemsize > 8:
            kind = values.dtype
            rule = "it must hold integers or floating-point numbers of at most 64 bits: convert it by astype"
            raise DataError(f"{name} holds {kind}; {rule}")
        if values.ndim < 2:
            raise DataError(
                f"{name} has shape {values.shape}; the first axis counts the events, the others are the event's"
            )
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def shapes(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return name -> shape and type of every array."""
        return {key: (values.shape, values.dtype) for key in self.keys for values in [self._read(key)]}

    def labels(self, key: str, count: int) -> np.ndarray:
        """Return the array (count,) of numbers or texts, one for each event; raise DataError if it is another."""
        values = self._read(key)
        if values.shape != (count,) or values.dtype.kind not in f"{NUMBERS}US" or values.dtype.itemsize > LABEL:
            rule = f"it must be a number or a short text for each of {count:,} events"
            raise DataError(f"{self.name}: {key} is {values.dtype} of shape {values.shape}; {rule}")
        return values

    def _read(self, key: str) -> np.ndarray:
        if key not in self.content:
            raise DataError(f"{self.name}: has no array {key!r}; it has {', '.join(self.keys) or 'none'}")
        archive = getattr(self.content, "zip", None)
        if archive is not None:
            size, most = archive.getinfo(f"{key}.npy").file_size, int(MEMORY_SHARE * available_memory())
            if size > most:
                raise DataError(
                    f"{self.name}: {key} unpacks to {shown_bytes(size)}, more than {MEMORY_SHARE:.0%} of the available "
                    "memory; write the events as a .npy file (numpy.save), which is not read as a whole"
                )
        hint = "get the file again, or convert an array of objects to numbers by astype before it is saved"
        with reading(f"{self.name}: {key}", hint):
            if not isinstance(values := self.content[key], np.ndarray):
                raise ValueError("it has no header of an array")
            return values


@contextlib.contextmanager
def open_npz(file: Path, name: str) -> Iterator[Npz]:
    """Open a .npz or .npy file, called `name` in messages.

    Raises:
        OSError: it is no regular file, or cannot be opened.
        DataError: it is neither.
    """
    with open_file(file, DATA) as opened:
        with reading(name, "it must be an .npz or .npy file, as numpy.savez or numpy.save writes it"):
            if not opened.read(6).startswith(SIGNATURES):
                raise ValueError("it has the signature of neither")
            opened.seek(0)
            source = file if file.suffix == ".npy" else opened
            content = np.load(source, mmap_mode="r", allow_pickle=False)
        if isinstance(content, np.ndarray):
            yield Npz(name, {"x": content})
        else:
            with content:
                yield Npz(name, content)
