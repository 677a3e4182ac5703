"""The folder of a run: used by one run at a time, and cleared of files that a killed run left incomplete."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from harness.core.errors import UserError
from harness.core.files import read_text, remove_unfinished, write_atomically
from harness.planning.plan import FILE

LOCK = ".lock"
OWNER = ".working"


def make_folder(folder: Path) -> Path:
    """Create the folder and its subfolders; raise a UserError if that fails."""
    try:
        for inner in (folder, folder / "records", folder / "logs"):
            inner.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written to ({error.strerror}); choose another --out") from error
    for place in (folder, folder / "records", folder / "logs"):
        if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
            raise UserError(
                f"{place}: cannot be read and written by this user; change its mode, or choose another --out"
            )
    if (folder / FILE).is_dir():
        raise UserError(f"{folder}: cannot be written to; choose another --out")
    return folder


@contextlib.contextmanager
def claimed(folder: Path, host: bool = False) -> Iterator[None]:
    """Lock a folder of `make_folder` until the context or this process ends; `host`: publish this machine's name.

    Raises:
        UserError: another run uses the folder; the message says which.
    """
    import filelock

    lock = filelock.FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        owner = ""
        with contextlib.suppress(OSError):
            owner = read_text(folder / OWNER)
        raise UserError(
            f"{folder}: another run uses this folder{owner}; wait for its end, or choose another --out"
        ) from None
    except OSError as error:
        raise UserError(f"{folder}: cannot be locked ({error.strerror}); choose another --out") from error
    try:
        with writing(folder):
            where = f" on {platform.node()}" if host else ""
            since = datetime.now(UTC).isoformat(timespec="seconds")
            write_atomically(folder / OWNER, f" (process {os.getpid()}{where}, since {since})".encode())
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / OWNER).unlink(missing_ok=True)
        lock.release()


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn an error of the disk inside the context into a UserError that names the folder."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{folder}: cannot be written to ({error.strerror or error}); make room there, or choose another --out"
        ) from error


def remove_leftovers(folder: Path) -> None:
    """Remove incomplete files of a killed process; call it only while no other process writes to the folder."""
    for place in (".", "records", "weights", "figures", "checkpoints/*", "heartbeats"):
        for inner in folder.glob(place) if place != "." else [folder]:
            remove_unfinished(inner)
