"""What a run knows of a trial: its provenance, and the record that its process has left, or why it has left none.

Provenance is collected once when a run starts: all its trials run the code imported then.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from harness.core.errors import UserError
from harness.core.files import RECORD, checked_name, read_file, write_atomically
from harness.core.isolation.process import SERVER_GONE, ending_text, log_tail, signal_name
from harness.core.provenance.environment import git_state
from harness.core.provenance.sources import Sources
from harness.core.records import Record, Status, blank_record, read_record
from harness.core.run_options import PROJECT
from harness.core.trial import Trial

# Signals that a machine or a person sends; faults of a program end it by other signals.
FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
NO_RECORD = "left no record"
SIGNAL = "signal"  # the note with the signal that ended a process


class End(NamedTuple):
    """The end of a trial's process that left no record."""

    status: Status
    reason: str
    signal: str | None = None  # that is the reason


Provenance = Callable[[Trial], Mapping[str, Any]]
"""Function from a trial to the provenance for its record."""


class RunProvenance:
    """The checkout's commit, and the host on request, which all trials share; the digests of each trial's source."""

    def __init__(self, host: bool = False) -> None:
        self._sources = Sources()
        state, self.diff = git_state(PROJECT)
        self.common: dict[str, Any] = {"git": state} | ({"host": platform.node()} if host else {})

    def digests(self, trial: Trial) -> Mapping[str, str]:
        """Return the digests of the source that can change this trial's result."""
        return self._sources.of(trial)

    def of(self, trial: Trial) -> dict[str, Any]:
        """Return the provenance for the trial's record."""
        return self.common | {"sources": self.digests(trial)}

    def save(self, out: Path) -> None:
        """Save the diff of the checkout against its commit, under the digest by which records refer to it."""
        if self.diff and self.common["git"] is not None:
            path = out / "source" / f"{self.common['git']['diff']}.diff"
            if not path.exists():
                write_atomically(path, self.diff.encode("utf-8", "surrogateescape"))


def record_path(out: Path, trial: Trial) -> Path:
    """Return `out/records/<id>.json`."""
    return out / "records" / f"{checked_name(trial.id)}.json"


def log_path(out: Path, trial: Trial) -> Path:
    """Return `out/logs/<id>.log`."""
    return out / "logs" / f"{checked_name(trial.id)}.log"


def digest(path: Path) -> str | None:
    """Return the SHA-256 of a file; None if there is no file."""
    try:
        return hashlib.sha256(read_file(path, RECORD)).hexdigest()
    except OSError:
        return None


def interrupted(record: Record) -> bool:
    """Return whether the trial was ended from outside, so that its record carries no result."""
    return record.status == "killed" and record.notes.get(SIGNAL, FROM_OUTSIDE[0]) in FROM_OUTSIDE


def left_record(trial: Trial, out: Path, before: str | None) -> tuple[Record | None, str]:
    """Return the record that replaced one of the digest `before`, or None and why it is missing."""
    path = record_path(out, trial)
    if digest(path) in (None, before):
        return None, NO_RECORD
    try:
        return read_record(path), ""
    except UserError as error:
        return None, str(error)


def missing_record(
    trial: Trial, out: Path, end: End, seconds: float, last_words: str, provenance: Mapping[str, Any]
) -> Record:
    """Return a record for a trial that left none after `seconds`; it is not yet on disk."""
    record = blank_record(trial, end.status, end.reason)
    record.seconds = seconds
    record.environment = dict(provenance)
    notes = {
        SIGNAL: end.signal,
        "progress": last_words and f"last progress: {last_words}",
        "log": log_tail(log_path(out, trial)),
    }
    record.notes.update({name: text for name, text in notes.items() if text})
    return record


def end_of(code: int | None, fault: str) -> End:
    """Return the end of a process that this program has not ended.

    Args:
        code: its exit code; negative: the number of the signal that ended it.
        fault: why there is no record.
    """
    text = ending_text(code)
    if code == SERVER_GONE:
        return End("killed", text)
    if code is None or code >= 0:
        return End("error", f"{text} and {fault}")
    name = signal_name(-code)
    if name == "SIGKILL":
        text += "; if no user sent it, the system was out of memory: run with fewer --jobs, or give a --memory"
    return End("killed", text, name)
