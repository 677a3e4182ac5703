"""The file that lists the trials which run now, here or on workers, from which `status` describes them.

The process of the run writes it while its trials run. It says nothing unless a run holds the lock of the folder: a
killed run leaves it behind.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from harness.core.files import RECORD, TEMPORARY, read_file
from harness.core.records import Record
from harness.core.run_options import shown_seconds
from harness.core.settings import Settings
from harness.core.texts import visible
from harness.core.trial import Trial
from harness.execution.folder import RUNNING, working
from harness.execution.progress import Reporter

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


def write_running(folder: Path, trials: Iterable[RunningTrial]) -> None:
    """Replace the list of a folder; an error of the disk ends no trial, and leaves an older list."""
    # Not forced onto the disk: a list that is lost with the machine was of trials that have ended with it.
    with contextlib.suppress(OSError):
        new = folder / f"{RUNNING}{TEMPORARY}"
        new.write_bytes(_TRIALS.dump_json(tuple(trials)))
        new.replace(folder / RUNNING)


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


class RunningReporter(Reporter):
    """Keep the list in the folder of a run up to date while in the context, and pass all reports on.

    Attributes:
        reporter: receives every report as well; it is in its own context already.
    """

    def __init__(self, reporter: Reporter, folder: Path) -> None:
        super().__init__(reporter.total, reporter.stream)
        self.reporter, self.folder = reporter, folder
        self._running: dict[str, RunningTrial] = {}
        self._written = 0.0

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            (self.folder / RUNNING).unlink(missing_ok=True)

    def started(self, trial: Trial) -> None:
        """Pass it on; `place` adds the trial."""
        self.reporter.started(trial)

    def place(self, trial: Trial, name: str) -> None:
        """Add a trial to the list."""
        self._running[trial.id] = RunningTrial(id=trial.id, place=name, since=time.time())
        self._write()
        self.reporter.place(trial, name)

    def update(self, trial: Trial, fraction: float, text: str) -> None:
        """Change the progress of a trial."""
        changed = {"fraction": fraction, "text": text, "heard": time.time()}
        self._running[trial.id] = self._running[trial.id].model_copy(update=changed)
        if time.monotonic() - self._written >= PERIOD:
            self._write()
        self.reporter.update(trial, fraction, text)

    def finished(self, trial: Trial, record: Record) -> None:
        """Remove a trial from the list."""
        self._running.pop(trial.id, None)
        self._write()
        self.reporter.finished(trial, record)

    def line(self, text: str) -> None:
        """Pass it on."""
        self.reporter.line(text)

    def _write(self) -> None:
        self._written = time.monotonic()
        write_running(self.folder, self._running.values())
