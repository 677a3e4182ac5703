"""The file that lists the trials which run now, here or on workers, from which `status` describes them.

The process of the run writes it while its trials run. It says nothing unless a run holds the lock of the folder.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from harness.core.files import RECORD, TEMPORARY, read_file
from harness.core.run_options import shown_seconds
from harness.core.texts import visible
from harness.execution.folder import RUNNING, working

Running = dict[str, tuple[str, float]]
"""Id of a trial -> where it runs, such as "process 4713", and its start in seconds since 1970."""

_RUNNING = TypeAdapter(Running)


def write_running(folder: Path, trials: Running) -> None:
    """Replace the list; an error of the disk ends no trial, and leaves an older list."""
    # Not forced onto the disk: a list that is lost with the machine was of trials that have ended with it.
    with contextlib.suppress(OSError):
        new = folder / f"{RUNNING}{TEMPORARY}"
        new.write_bytes(_RUNNING.dump_json(trials))
        new.replace(folder / RUNNING)


def running_lines(folder: Path) -> list[str]:
    """Return the lines of `status` on a run that uses the folder now, and on each of its trials; none without one."""
    owner = working(folder)
    if owner is None:
        return []
    trials: Running = {}
    with contextlib.suppress(OSError, ValidationError):
        trials = _RUNNING.validate_json(read_file(folder / RUNNING, RECORD))
    now, count = time.time(), f"{len(trials) or 'no'} trial{'' if len(trials) == 1 else 's'} running now"
    about = [
        f"  {key}  running for {shown_seconds(max(0.0, now - since))} ({place})"
        for key, (place, since) in trials.items()
    ]
    return [visible(line) for line in (f"a run uses this folder{owner}: {count}", *about)]
