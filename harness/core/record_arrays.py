"""Unpack the arrays beside a record: their sizes and types are checked before any of them is allocated."""

from __future__ import annotations

import io
import math
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from harness.core.errors import UserError
from harness.core.files import ARRAYS_UNPACKED
from harness.core.records import HINT
from harness.core.texts import error_text

if TYPE_CHECKING:
    import numpy as np

NUMBERS = "biuf"  # kinds of dtype: truth values, signed, unsigned, floating
ENDING = ".npy"
MOST_AXES = 8
LONGEST_HEADER = 10_000  # bytes, as numpy limits it


def unpacked_arrays(content: bytes, path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file by name.

    Raises:
        UserError: it is damaged, its arrays take more than `ARRAYS_UNPACKED` bytes, or one holds no plain numbers; the
            message names `path`.
    """
    import numpy as np

    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if size > ARRAYS_UNPACKED:
                raise ValueError(f"they would take {size:,} bytes, and at most {ARRAYS_UNPACKED:,} are read")
            arrays = {}
            for member in members:
                name = member.filename.removesuffix(ENDING)
                if name == member.filename or name in arrays:
                    raise ValueError(f"the member {name!r:.80} is no array, or there twice")
                with archive.open(member) as file:
                    shape, fortran, dtype = npy_header(file)
                    count = math.prod(shape)
                    if dtype.kind not in NUMBERS or len(shape) > MOST_AXES:
                        raise ValueError(f"{name!r:.80} holds {dtype} of {len(shape)} axes")
                    if file.tell() + count * dtype.itemsize != member.file_size:
                        raise ValueError(f"{name!r:.80} has another size than its shape, {shape}")
                    values = np.frombuffer(file.read(), dtype)
                arrays[name] = values.reshape(shape, order="F" if fortran else "C")
            return arrays
    except Exception as error:  # zipfile, its decompressors and numpy raise many kinds on a damaged file
        raise UserError(f"{path}: damaged arrays ({error_text(error, 200)}); {HINT}") from error


def npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, Fortran order and dtype of an .npy file; the file is left at the first value.

    Raises:
        ValueError: it is damaged, or its version of the format is for records with named fields.
    """
    import numpy as np

    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file, LONGEST_HEADER)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file, LONGEST_HEADER)
    raise ValueError(f"version {version} of the .npy format is for records with named fields")
