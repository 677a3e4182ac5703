"""Report the progress of a run: one plain line per trial, below them a bar on a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from harness.core.files import RECORD, read_text
from harness.core.records import Record, verdict
from harness.core.texts import bounded
from harness.core.trial import Trial, trial_class
from harness.execution.local.running import Running, write_running
from harness.execution.outcome import log_path

REASON_WIDTH = 160
LINE_SECONDS = 5.0  # between two lines on the progress of a report


class Reporter(contextlib.AbstractContextManager["Reporter"]):
    """Write a line for every finished trial, and list those that run. Use as a context manager around the run.

    Args:
        total: number of trials.
        stream: of the lines.
        folder: of the run, which keeps the list for `status`; None: there is no list.
    """

    def __init__(self, total: int, stream: TextIO, folder: Path | None = None) -> None:
        self.total = total
        self.done = 0
        self.stream = stream
        self.folder = folder
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
        """Report that a trial has left its record."""
        self._running.pop(trial.id, None)
        self._list()
        self.done += 1
        self.report(trial, record)

    def report(self, trial: Trial, record: Record) -> None:
        """Write the line of a finished trial."""
        self.line(f"[{self.done}/{self.total}] {trial.slug}: {outcome(record)}")

    def line(self, text: str) -> None:
        """Write one line."""
        print(text, file=self.stream, flush=True)

    def _list(self) -> None:
        if self.folder is not None:
            write_running(self.folder, self._running)


class LiveReporter(Reporter):
    """Write the same lines above a progress bar for the whole run, with the time left and the last message of a trial.

    In a notebook the bar is a widget.
    """

    def __init__(self, total: int, stream: TextIO, folder: Path | None = None) -> None:
        super().__init__(total, stream, folder)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[text]}", markup=False, style="dim"),
            console=Console(file=stream, highlight=False),
            transient=True,
            # The bar advances by fractions of trials, so the window must span several of them.
            speed_estimate_period=120.0,
        )
        self._whole = self._progress.add_task("all trials", total=total, text="starting")
        self._fractions: dict[str, float] = {}  # of the running trials

    def __enter__(self) -> LiveReporter:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, trial: Trial, fraction: float, text: str) -> None:
        """Move the bar by the trial's share, and show its message."""
        self._fractions[trial.id] = fraction
        self._advance(f", {trial.slug}: {text}")

    def report(self, trial: Trial, record: Record) -> None:
        """Write the line, and move the bar to the end of the trial."""
        super().report(trial, record)
        self._fractions.pop(trial.id, None)
        self._advance()

    def line(self, text: str) -> None:
        """Write one line above the bar."""
        self._progress.console.print(Text(text), soft_wrap=True)

    def _advance(self, text: str = "") -> None:
        completed = self.done + sum(self._fractions.values())
        self._progress.update(self._whole, completed=completed, text=f"{self.done} of {self.total} done{text}")


class ReportProgress(contextlib.AbstractContextManager["ReportProgress"]):
    """Write a line every `LINE_SECONDS` on how much of a report is made; a `harness.core.settings.Progress`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stream, _ = _place()
        self._told = time.monotonic()

    def __exit__(self, *_: object) -> None:
        return None

    def __call__(self, fraction: float, text: str) -> None:
        """Take the share that is done, and what is made now."""
        if time.monotonic() - self._told >= LINE_SECONDS:
            self._told = time.monotonic()
            print(f"report of {self.name}, {fraction:.0%}: {text}", file=self._stream, flush=True)


class QuietReporter(Reporter):
    """Write a line only for a trial that does not count as ok."""

    def __init__(self, total: int, stream: TextIO, folder: Path | None, good: Callable[[Record], bool]) -> None:
        super().__init__(total, stream, folder)
        self.good = good

    def report(self, trial: Trial, record: Record) -> None:
        """Write the line of a trial that has failed."""
        if not self.good(record):
            super().report(trial, record)


class VerboseReporter(Reporter):
    """Write every progress message of a trial, and its log below the line of its end."""

    _last = ""

    def update(self, trial: Trial, fraction: float, text: str) -> None:
        """Write a message that differs from the last one."""
        if (line := f"{trial.slug}: {text}") != self._last:
            self._last = line
            self.line(line)

    def report(self, trial: Trial, record: Record) -> None:
        """Write the line, and everything that the trial's process has printed."""
        super().report(trial, record)
        with contextlib.suppress(OSError):  # a trial on a cluster may have left no log here
            for text in read_text(log_path(self.folder or Path(), trial), RECORD).splitlines():
                self.line(f"    {bounded(text)}")  # third-party code may print escape sequences


def make_reporter(total: int, folder: Path | None = None, stream: TextIO | None = None) -> Reporter:
    """Return a reporter for the stream: live on a terminal, and in a notebook that can show widgets; plain elsewhere.

    By default the stream is standard error, in a notebook standard output: notebooks show errors as alarms.
    """
    stream, live = _place(stream)
    return (LiveReporter if live else Reporter)(total, stream, folder)


def _place(stream: TextIO | None = None) -> tuple[TextIO, bool]:
    """Return the stream of progress, and whether it can show bars."""
    notebook = Console().is_jupyter
    if stream is None:
        stream = sys.stdout if notebook else sys.stderr
    return stream, find_spec("ipywidgets") is not None if notebook else stream.isatty()


def outcome(record: Record) -> str:
    """Return the outcome of a trial in a few words: its main measure and time, or its status and the reason."""
    if record.status != "ok":
        reason = " ".join((record.reason or "no reason given").split())
        return f"{record.status}: {reason[:REASON_WIDTH]}{'…' if len(reason) > REASON_WIDTH else ''}"
    took = "" if record.seconds is None else f" in {record.seconds:.1f} s"
    measured = trial_class(record.trial["kind"]).headline(record.rows) if record.rows else ""
    return f"{verdict(record)}{measured and f' {measured}'}{took}"
