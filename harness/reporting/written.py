"""Write the files of a report, and through no link; remove those that an earlier report wrote and this one lacks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.core.errors import UserError
from harness.core.files import write_atomically
from harness.core.texts import visible


def write_files(folder: Path, content: Mapping[str, bytes], optional: Sequence[str]) -> None:
    """Write files by their names below a folder, each whole or not at all.

    Args:
        optional: patterns of the names of files that not every report has; those that this one lacks are removed, and
            named on standard error.

    Raises:
        UserError: a folder below is a link.
    """
    refuse_links(folder, *(folder / name.split("/")[0] for name in (*content, *optional) if "/" in name))
    for name, data in content.items():
        write_atomically(folder / name, data)
    others = {path for pattern in optional for path in folder.glob(pattern)} - {folder / name for name in content}
    for path in sorted(others):
        if path.is_symlink() or not path.is_dir():
            path.unlink()
            print(f"removed, as this report has no such file: {visible(str(path))}", file=sys.stderr)


def refuse_links(folder: Path, *below: Path) -> None:
    """Raise a UserError if one of the folders `below` is a symbolic link, which would lead out of the folder."""
    for inner in below:
        if inner.is_symlink():
            raise UserError(f"{inner}: is a symbolic link, and nothing is written through one; remove it from {folder}")
