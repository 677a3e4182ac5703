"""Write the files of a report, and remove those of the one before: only what it wrote, and through no link."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from harness.core.errors import UserError
from harness.core.files import RECORD, checked_name, read_file, write_atomically

MANIFEST = ".report.json"
"""The file beside a report that lists its figures and other files that a later one may lack, with their SHA-256."""


def write_files(folder: Path, content: Mapping[str, bytes], passing: tuple[str, ...]) -> None:
    """Write files by their names below a folder, each whole or not at all; remove those of the last call that are gone.

    A file is removed only if it is as the last call wrote it: one that a user has edited or added stays.

    Args:
        passing: the beginnings of the names of files that a later report may lack.

    Raises:
        UserError: a folder below is a link.
    """
    refuse_links(folder, *(folder / name.split("/")[0] for name in content if "/" in name))
    before = _manifest(folder)
    now = {name: hashlib.sha256(data).hexdigest() for name, data in content.items() if name.startswith(passing)}
    _write_manifest(folder, before | now)  # so that files of an interrupted report are removed by the next
    for name, data in content.items():
        write_atomically(folder / name, data)
    for name in before.keys() - now.keys():
        if _digest(folder, name) == before[name]:
            (folder / name).unlink(missing_ok=True)
    _write_manifest(folder, now)


def refuse_links(folder: Path, *below: Path) -> None:
    """Raise a UserError if one of the folders `below` is a symbolic link, which would lead out of the folder."""
    for inner in below:
        if inner.is_symlink():
            raise UserError(f"{inner}: is a symbolic link, and nothing is written through one; remove it from {folder}")


def _write_manifest(folder: Path, digests: Mapping[str, str]) -> None:
    write_atomically(folder / MANIFEST, json.dumps(digests, indent=0, sort_keys=True).encode() + b"\n")


def _manifest(folder: Path) -> dict[str, str]:
    """Return name -> SHA-256 of the files of the last report; empty without one, or if the list cannot be read."""
    try:
        listed = json.loads(read_file(folder / MANIFEST, RECORD))
    except (OSError, ValueError, RecursionError):
        return {}
    return {name: text for name, text in listed.items() if isinstance(text, str)} if isinstance(listed, dict) else {}


def _digest(folder: Path, name: str) -> str | None:
    """Return the SHA-256 of a file of a report; None if the name is of no such file, or there is a link on the way."""
    try:
        parts = [checked_name(part) for part in name.split("/")]
        steps = [folder.joinpath(*parts[: number + 1]) for number in range(len(parts))]
        linked = any(step.is_symlink() for step in steps)
        return None if linked else hashlib.sha256(read_file(steps[-1], RECORD)).hexdigest()
    except (OSError, ValueError):
        return None
