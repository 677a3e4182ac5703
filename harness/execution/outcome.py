"""Turn the end of a trial's process into a record: the one that it left, or one with the reason why it left none."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from harness.core.errors import UserError
from harness.core.files import RECORD, checked_name, read_file
from harness.core.isolation.process import SERVER_GONE, ending_text, log_tail, signal_name
from harness.core.records import Record, Status, blank_record, read_record
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


def end_of(code: int | None, fault: str, out_of_memory: bool) -> End:
    """Return the end of a process that nobody ended.

    Args:
        code: its exit code; negative: the number of the signal that ended it.
        fault: why there is no record.
        out_of_memory: whether the kernel has killed processes for lack of memory meanwhile.
    """
    text = ending_text(code)
    if code == SERVER_GONE:
        return End("killed", text)
    if code is None or code >= 0:
        return End(
            "error", f"{text} before it left a result" if (code, fault) == (0, NO_RECORD) else f"{text} and {fault}"
        )
    name = signal_name(-code)
    if name == "SIGKILL" and out_of_memory:
        return End("oom", "the system was out of memory and ended the process; run fewer --jobs or give a --memory")
    if name == "SIGKILL":
        text += "; if no user sent it, the system was out of memory: run with fewer --jobs or a smaller batch"
    return End("killed", text, name)
