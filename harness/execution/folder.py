"""The folder of a run: used by one run at a time, and cleared of files that a killed run left incomplete."""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from harness.core.errors import UserError
from harness.core.records import TEMPORARY, write_atomically
from harness.planning.plan import FILE

LOCK = ".lock"
OWNER = ".working.json"


def make_folder(folder: Path) -> Path:
    """Create the folder and its subfolders; raise a UserError if that fails."""
    try:
        for inner in (folder, folder / "records", folder / "logs"):
            inner.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written to ({error.strerror}); choose another --out") from error
    if not os.access(folder, os.W_OK) or (folder / FILE).is_dir():
        raise UserError(f"{folder}: cannot be written to; choose another --out")
    return folder


@contextlib.contextmanager
def claimed(folder: Path, host: bool = False) -> Iterator[None]:
    """Lock the folder for this process until the context or the process ends, however it ends.

    Args:
        folder: returned by `make_folder`.
        host: whether to tell other processes the name of this machine.

    Raises:
        UserError: another run uses the folder; the message says which.
    """
    import filelock

    lock = filelock.FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise UserError(
            f"{folder}: another run uses this folder{_owner(folder)}; wait for its end, or choose another --out"
        ) from None
    except OSError as error:
        raise UserError(f"{folder}: cannot be locked ({error.strerror}); choose another --out") from error
    try:
        with writing(folder):
            about = {"pid": os.getpid(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
            if host:
                about["host"] = platform.node()
            write_atomically(folder / OWNER, json.dumps(about).encode())
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / OWNER).unlink(missing_ok=True)
        lock.release()


def _owner(folder: Path) -> str:
    """Return the lock's owner, ` (process 1234 on node7, since 2026-11-21T09:00:00+00:00)`, as far as known."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        about = json.loads((folder / OWNER).read_text(encoding="utf-8"))
        where = f" on {about['host']}" if "host" in about else ""
        return f" (process {int(about['pid'])}{where}, since {about['since']})"
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
    for place in (".", "records", "weights", "figures", "checkpoints/*", "heartbeats"):
        for path in folder.glob(f"{place}/.*{TEMPORARY}"):
            path.unlink(missing_ok=True)
