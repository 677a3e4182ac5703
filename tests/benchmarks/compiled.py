"""Compile a yardstick that is written in C++."""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path

from layers.kernels.build import find_compiler, run_compiler


def compiled(source: Path, *flags: str) -> ctypes.CDLL:
    """Return the shared library of one source file that includes no header of torch: a compilation takes a second."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "yardstick.so")
        run_compiler([*find_compiler(), *flags, "-shared", "-fPIC", str(source), "-o", str(library)])
        return ctypes.CDLL(str(library))  # stays mapped when the file is deleted
