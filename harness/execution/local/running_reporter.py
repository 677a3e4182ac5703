"""Keep the list of the trials that run now up to date, and pass all reports on."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

from harness.core.records import Record
from harness.core.trial import Trial
from harness.execution.folder import RUNNING
from harness.execution.local.running import RunningTrial, write_running
from harness.execution.progress import Reporter

PERIOD = 1.0  # seconds between two writes: a trial reports up to ten times a second


class RunningReporter(Reporter):
    """Write the running trials to the folder of the run (see `harness.execution.local.running`) while in the context.

    Attributes:
        reporter: receives every report as well; it is in its own context already.
    """

    def __init__(self, reporter: Reporter, folder: Path) -> None:
        super().__init__(reporter.total, reporter.stream)
        self.reporter, self.folder = reporter, folder
        self._running: dict[str, RunningTrial] = {}
        self._changed, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> RunningReporter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._changed.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            (self.folder / RUNNING).unlink(missing_ok=True)

    def started(self, trial: Trial) -> None:
        """Pass it on; `place` adds the trial."""
        self.reporter.started(trial)

    def place(self, trial: Trial, name: str) -> None:
        """Add a trial to the list."""
        self._set({**self._running, trial.id: RunningTrial(id=trial.id, place=name, since=time.time())})
        self.reporter.place(trial, name)

    def update(self, trial: Trial, fraction: float, text: str) -> None:
        """Change the progress of a trial."""
        changed = {"fraction": fraction, "text": text, "heard": time.time()}
        self._set({**self._running, trial.id: self._running[trial.id].model_copy(update=changed)})
        self.reporter.update(trial, fraction, text)

    def finished(self, trial: Trial, record: Record) -> None:
        """Remove a trial from the list."""
        self._set({key: running for key, running in self._running.items() if key != trial.id})
        self.reporter.finished(trial, record)

    def line(self, text: str) -> None:
        """Pass it on."""
        self.reporter.line(text)

    def _set(self, running: dict[str, RunningTrial]) -> None:
        self._running = running  # a new one: the thread may be reading the last
        self._changed.set()

    def _repeat(self) -> None:
        """Write the list whenever it has changed, at most once in each period."""
        while self._changed.wait() and not self._over.is_set():
            self._changed.clear()
            write_running(self.folder, self._running.values())
            self._over.wait(PERIOD)
