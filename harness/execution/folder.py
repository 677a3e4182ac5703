"""The folder of a run: used by one run at a time, and cleared of files that a killed run left incomplete.

The process of a run lists there the trials that run now, here or on workers, from which `status` describes them. The
list says nothing unless a run holds the lock of the folder.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from harness.core.errors import UserError
from harness.core.files import RECORD, TEMPORARY, read_file, remove_unfinished
from harness.core.run_options import shown_seconds
from harness.core.texts import visible

LOCK = ".lock"
RUNNING = ".running.json"
PATIENCE = 0.3  # seconds: `working` holds the lock for a moment

Running = dict[str, tuple[str, float]]
"""Id of a trial -> where it runs, such as "process 4713", and its start in seconds since 1970."""

_RUNNING = TypeAdapter(Running)


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
    return folder


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Lock a folder of `make_folder` until the context or this process ends.

    Raises:
        UserError: another run uses the folder.
    """
    import filelock

    lock = filelock.FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=PATIENCE)
    except filelock.Timeout:
        raise UserError(f"{folder}: another run uses this folder; wait for its end, or choose another --out") from None
    except OSError as error:
        raise UserError(f"{folder}: cannot be locked ({error.strerror}); choose another --out") from error
    try:
        write_running(folder, {})  # a killed run has left its list, whose trials have ended with it
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / RUNNING).unlink(missing_ok=True)
        lock.release()


def working(folder: Path) -> bool:
    """Return whether a run uses a folder now.

    A killed run has lost its lock. The lock of a folder that this user may not read is unknown, and counts as none.
    """
    import fcntl  # not on Windows

    try:
        with (folder / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def write_running(folder: Path, trials: Running) -> None:
    """Replace the list of the trials that run; an error of the disk ends no trial, and leaves an older list."""
    # Not forced onto the disk: a list that is lost with the machine was of trials that have ended with it.
    with contextlib.suppress(OSError):
        new = folder / f"{RUNNING}{TEMPORARY}"
        new.write_bytes(_RUNNING.dump_json(trials))
        new.replace(folder / RUNNING)


def running_lines(folder: Path) -> list[str]:
    """Return the lines of `status` on a run that uses the folder now, and on each of its trials; none without one."""
    if not working(folder):
        return []
    trials: Running = {}
    with contextlib.suppress(OSError, ValidationError):
        trials = _RUNNING.validate_json(read_file(folder / RUNNING, RECORD))
    lines = [f"a run uses this folder: {len(trials)} of its trials run now"]
    for key, (place, since) in trials.items():
        lines.append(f"  {key}  running for {shown_seconds(max(0.0, time.time() - since))} ({place})")
    return list(map(visible, lines))


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
