"""Report the progress of a run: one plain line per trial, below them one that changes, on a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.text import Text

from harness.core.records import Record, verdict
from harness.core.texts import shortened
from harness.core.trial import Trial, trial_class
from harness.execution.folder import Running, write_running

REASON_WIDTH = 160
LINE_SECONDS = 5.0  # between two lines on the progress of a report


class FailedFast(Exception):
    """A trial has failed, in a run that shall end then."""


class Reporter(contextlib.AbstractContextManager["Reporter"]):
    """Write a line for every finished trial, and list those that run. Use as a context manager around the run.

    Args:
        total: number of trials.
        stream: of the lines.
        folder: of the run, which keeps the list for `status`; None: there is no list.
        quiet: whether to leave out the lines of trials that count as ok.
        fail_fast: whether a trial that does not count as ok ends the run.
        unsupported: whether `unsupported` counts as ok.
    """

    def __init__(
        self,
        total: int,
        stream: TextIO,
        folder: Path | None = None,
        *,
        quiet: bool = False,
        fail_fast: bool = False,
        unsupported: bool = False,
    ) -> None:
        self.quiet, self.fail_fast, self.unsupported = quiet, fail_fast, unsupported
        self.total, self.stream, self.folder = total, stream, folder
        self.done = 0
        self._running: Running = {}

    def __exit__(self, *_: object) -> None:
        return None

    def started(self, trial: Trial, place: str = "") -> None:
        """Note that a trial has started, in a process or a worker of this name; without one it is not listed."""
        if place:
            self._running[trial.id] = place, time.time()
            self._list()

    def update(self, trial: Trial, fraction: float, text: str) -> None:
        """Note the progress of a running trial."""

    def finished(self, trial: Trial, record: Record) -> None:
        """Report that a trial has left its record; raise FailedFast if it ends the run."""
        self._running.pop(trial.id, None)
        self._list()
        self.done += 1
        good = trial.accepts(verdict(record), self.unsupported)
        if not (good and self.quiet):
            self.line(f"[{self.done}/{self.total}] {trial.slug}: {outcome(record)}")
        if self.fail_fast and not good:
            raise FailedFast

    def line(self, text: str) -> None:
        """Write one line."""
        print(text, file=self.stream, flush=True)

    def _list(self) -> None:
        if self.folder is not None:
            write_running(self.folder, self._running)


class LiveReporter(Reporter):
    """Write the same lines above one that changes: how many trials have ended, and the last message of a trial."""

    def __init__(self, total: int, stream: TextIO, folder: Path | None = None, **options: bool) -> None:
        super().__init__(total, stream, folder, **options)
        self._console = Console(file=stream, highlight=False)
        self._status = self._console.status("starting")

    def __enter__(self) -> LiveReporter:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def update(self, trial: Trial, fraction: float, text: str) -> None:
        """Show the message of a trial."""
        self._status.update(Text(f"{self.done} of {self.total} done, {trial.slug}, {fraction:.0%}: {text}"))

    def line(self, text: str) -> None:
        """Write one line above that one."""
        self._console.print(Text(text), soft_wrap=True)


class ReportProgress:
    """Write a line every `LINE_SECONDS` on how much of a report is made; a `harness.core.settings.Progress`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stream = _stream()
        self._told = time.monotonic()

    def __call__(self, fraction: float, text: str) -> None:
        """Take the share that is done, and what is made now."""
        if time.monotonic() - self._told >= LINE_SECONDS:
            self._told = time.monotonic()
            print(f"report of {self.name}, {fraction:.0%}: {text}", file=self._stream, flush=True)


def make_reporter(total: int, folder: Path | None = None, stream: TextIO | None = None, **options: bool) -> Reporter:
    """Return a reporter for the stream, live on a terminal; by default the stream is that of all progress."""
    stream, quiet = stream or _stream(), options.get("quiet", False)
    return (LiveReporter if stream.isatty() and not quiet else Reporter)(total, stream, folder, **options)


def _stream() -> TextIO:
    """Return standard error, in a notebook standard output: notebooks show errors as alarms."""
    return sys.stdout if Console().is_jupyter else sys.stderr


def outcome(record: Record) -> str:
    """Return the outcome of a trial in a few words: its main measure and time, or its status and the reason."""
    if record.status != "ok":
        reason = " ".join((record.reason or "no reason given").split())
        return f"{record.status}: {shortened(reason, REASON_WIDTH)}"
    took = "" if record.seconds is None else f" in {record.seconds:.1f} s"
    measured = trial_class(record.trial["kind"]).headline(record.rows) if record.rows else ""
    return f"{verdict(record)}{measured and f' {measured}'}{took}"
