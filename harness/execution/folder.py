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
RUNNING = ".running.json"
PATIENCE = 0.3  # seconds: `working` holds the lock for a moment


def make_folder(folder: Path) -> Path:
    """Create the folder and its subfolders; raise a UserError if that fails."""
    for place in (folder, folder / "records", folder / "logs"):
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder}: cannot be written to ({error.strerror}); choose another --out") from error
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
        lock.acquire(timeout=PATIENCE)
    except filelock.Timeout:
        raise UserError(
            f"{folder}: another run uses this folder{_owner(folder)}; wait for its end, or choose another --out"
        ) from None
    except OSError as error:
        raise UserError(f"{folder}: cannot be locked ({error.strerror}); choose another --out") from error
    try:
        with writing(folder):
            (folder / RUNNING).unlink(missing_ok=True)  # of a killed run, whose trials have ended with it
            where = f" on {platform.node()}" if host else ""
            since = datetime.now(UTC).isoformat(timespec="seconds")
            write_atomically(folder / OWNER, f" (process {os.getpid()}{where}, since {since})".encode())
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / OWNER).unlink(missing_ok=True)
            (folder / RUNNING).unlink(missing_ok=True)
        lock.release()


def working(folder: Path) -> str | None:
    """Return the process of the run that uses a folder now and since when, as text; None if none does.

    A killed run has lost its lock. The lock of a folder that this user may not read is unknown, and counts as none.
    """
    import fcntl  # not on Windows

    try:
        with (folder / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _owner(folder)
    except OSError:
        return None
    return None


def _owner(folder: Path) -> str:
    with contextlib.suppress(OSError):
        return read_text(folder / OWNER)
    return ""


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
    places = ("records", "weights", "figures", "checkpoints/*")
    for inner in [folder, *(inner for place in places for inner in folder.glob(place))]:
        remove_unfinished(inner)
