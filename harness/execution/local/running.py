"""The file that lists the trials which run now, here or on workers, from which `status` describes them.

The process of the run writes it while its trials run. It says nothing unless a run holds the lock of the folder: a
killed run leaves it behind.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from harness.core.files import RECORD, TEMPORARY, read_file
from harness.core.run_options import shown_seconds
from harness.core.settings import Settings
from harness.core.texts import visible
from harness.execution.folder import RUNNING, working

PERIOD = 1.0  # seconds between two writes for messages: a trial sends up to ten a second


class RunningTrial(Settings):
    """A trial that runs now; times are in seconds since 1970."""

    id: str
    place: str  # where it runs, such as "process 4713"
    since: float  # its start
    heard: float | None = None  # time of its last message; those of workers send none
    fraction: float = 0.0  # of its work, by this message
    text: str = ""  # of this message, such as "step 340/1000"

    def line(self, now: float) -> str:
        """Return its line of `status`."""
        line = f"  {self.id}  running for {shown_seconds(max(0.0, now - self.since))}"
        if self.heard is None:
            return visible(f"{line} ({self.place})")
        silence = shown_seconds(max(0.0, now - self.heard))
        return visible(f"{line}: {self.text}, {self.fraction:.0%} done ({self.place}, heard {silence} ago)")


_TRIALS = TypeAdapter(tuple[RunningTrial, ...])


def running_lines(folder: Path) -> list[str]:
    """Return the lines of `status` on a run that uses the folder now, and on each of its trials; none without one."""
    owner = working(folder)
    if owner is None:
        return []
    trials: tuple[RunningTrial, ...] = ()
    with contextlib.suppress(OSError, ValidationError):
        trials = _TRIALS.validate_json(read_file(folder / RUNNING, RECORD))
    now, count = time.time(), f"{len(trials) or 'no'} trial{'' if len(trials) == 1 else 's'} running now"
    return [visible(f"a run uses this folder{owner}: {count}"), *(trial.line(now) for trial in trials)]


class RunningTrials:
    """The list in the folder of a run, kept up to date; without a folder, nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._running: dict[str, RunningTrial] = {}
        self._written = 0.0

    def add(self, trial: str, place: str) -> None:
        """Add a trial that has started in a process or a worker."""
        self._running[trial] = RunningTrial(id=trial, place=place, since=time.time())
        self._write()

    def update(self, trial: str, fraction: float, text: str) -> None:
        """Change the progress of a trial."""
        if trial not in self._running:
            return
        changed = {"fraction": fraction, "text": text, "heard": time.time()}
        self._running[trial] = self._running[trial].model_copy(update=changed)
        if time.monotonic() - self._written >= PERIOD:
            self._write()

    def remove(self, trial: str) -> None:
        """Remove a trial that has ended."""
        self._running.pop(trial, None)
        self._write()

    def close(self) -> None:
        """Remove the list."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder / RUNNING).unlink(missing_ok=True)

    def _write(self) -> None:
        """Replace the list; an error of the disk ends no trial, and leaves an older list."""
        # Not forced onto the disk: a list that is lost with the machine was of trials that have ended with it.
        self._written = time.monotonic()
        if self._folder is not None:
            with contextlib.suppress(OSError):
                new = self._folder / f"{RUNNING}{TEMPORARY}"
                new.write_bytes(_TRIALS.dump_json(tuple(self._running.values())))
                new.replace(self._folder / RUNNING)
