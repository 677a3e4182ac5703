"""Decide whether a compiled library of the cache may be loaded: whole, and written by this user or root alone.

Loading a library runs its code. A cache in a shared folder, or one made under a generous umask, could hold a library
that another user has put there.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tempfile
from pathlib import Path

DIGEST = ".sha256"  # ends the name of the file beside a library that holds its SHA-256
OTHERS = stat.S_IWGRP | stat.S_IWOTH


def fault_of(library: Path) -> str | None:
    """Return why another user could have written the library, its folder or the cache; None if none could.

    What is not there yet has no fault. Links are followed first. A folder further up may belong to anyone, as long as
    not everybody may rename what is in it.
    """
    place = library.resolve()
    for path in (place, place.parent, place.parent.parent):
        try:
            facts = path.stat()
        except FileNotFoundError:
            continue
        if facts.st_uid not in (0, os.geteuid()):
            return f"{path} belongs to another user"
        if facts.st_mode & OTHERS:
            return f"{path} can be written by other users"
    for path in place.parent.parent.parents:
        if path.exists() and path.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
            return f"{path} can be written by every user"
    return None


def private_folder() -> Path:
    """Return a cache for this user alone, below the folder for temporary files, where no other can replace it.

    Raises:
        OSError: it cannot be made, or another user has made something of its name.
    """
    folder = Path(tempfile.gettempdir()) / f"invertbench-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        raise OSError(errno.EPERM, f"{folder} is not a folder of this user alone", str(folder))
    return folder / "kernels"


def seal(folder: Path, library: Path) -> None:
    """Make the new files of a folder writable for this user alone, and write the digest of the library among them."""
    for path in folder.iterdir():
        path.chmod(path.stat().st_mode & ~OTHERS)
    digest = library.with_name(f"{library.name}{DIGEST}")
    digest.write_text(_sha256(library), encoding="ascii")
    digest.chmod(digest.stat().st_mode & ~OTHERS)


def is_whole(library: Path) -> bool:
    """Return whether the library is there, and is what its build made."""
    try:
        if not stat.S_ISREG(library.stat().st_mode):
            return False
        return library.with_name(f"{library.name}{DIGEST}").read_text(encoding="ascii") == _sha256(library)
    except (OSError, ValueError):
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
