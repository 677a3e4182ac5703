"""Compile the bodies of CUDA kernels for the processor, on which host_block.h runs them thread by thread."""

import subprocess
from collections.abc import Sequence
from ctypes import CDLL, c_char_p
from pathlib import Path

import pytest

from layers.kernels.build import BuildFailed, find_compiler

TESTS = Path(__file__).resolve().parents[1]
EMULATION, CSRC = TESTS / "layers" / "emulation", TESTS.parent / "csrc"


def compile_host(source: Path, folder: Path, functions: Sequence[str], places: Sequence[Path]) -> CDLL:
    """Return the library of a source, whose functions return the fault that the emulation detects, or None.

    Headers are looked for in `places` and beside host_block.h.
    """
    try:
        compiler = find_compiler()
    except BuildFailed as error:
        pytest.skip(f"{error}")
    library = folder / "emulation.so"
    flags = ["-std=c++20", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    headers = [f"-I{place}" for place in (*places, EMULATION)]
    command = [*compiler, *flags, *headers, str(source), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    compiled = CDLL(str(library))
    for function in functions:
        getattr(compiled, function).restype = c_char_p
    return compiled
