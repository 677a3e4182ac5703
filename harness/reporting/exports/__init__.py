"""Formats in which other tools read a run: one file per format, which is named like it and found by itself.

Each defines `write(results, folder) -> Path`, which writes below the folder of a run, replaces the files of an earlier
export, and returns the file or folder.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.reporting.frame import Results

FORMATS = tuple(sorted(module.name for module in iter_modules(__path__)))


def export(results: Results, folder: Path, to: str) -> Path:
    """Write the results in one of `FORMATS`; return the written file or folder.

    Raises:
        UserError: a library that the format needs is missing.
    """
    written: Path = import_module(f"{__name__}.{to}").write(results, folder)
    return written
