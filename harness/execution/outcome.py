"""Turn the end of a trial's process into a record: the one that it left, or one with the reason why it left none."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.files import RECORD, checked_name, read_file
from harness.core.isolation.process import SERVER_GONE, ending_text, log_tail, signal_name
from harness.core.records import Record, Status, blank_record, read_record
from harness.core.run_options import RunOptions, shown_bytes, shown_seconds
from harness.core.trial import Trial

# Signals that a machine or a person sends; faults of a program end it by other signals.
FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
NO_RECORD = "left no record"
SIGNAL = "signal"  # the note with the signal that ended a process


@dataclass
class Ending:
    """The end of a trial's process, as the supervisor observes it."""

    exit_code: int | None = None  # negative: the number of the signal that ended it
    seconds: float = 0.0  # since its start
    limit: Status | None = None  # for which the supervisor ended it: "timeout" or "oom"
    held: int = 0  # bytes that it held at that time
    out_of_memory: bool = False  # the kernel killed processes for lack of memory while it ran
    last_words: str = ""  # its last progress message
    unwritten: bool = False  # it could not write its record, although there is room on the disk
    bad_message: str = ""  # why its messages could not be read, for which the supervisor ended it

    @property
    def forced(self) -> bool:
        """True if the supervisor has ended the process."""
        return self.limit is not None or self.bad_message != ""


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
    trial: Trial, run_options: RunOptions, ending: Ending, fault: str, provenance: Mapping[str, Any]
) -> Record:
    """Return a record for a trial that left none; it is not yet on disk."""
    status, reason, signal_name = _status(run_options, ending, fault)
    record = blank_record(trial, status, reason)
    record.seconds = ending.seconds
    record.environment = dict(provenance)
    if signal_name is not None:
        record.notes[SIGNAL] = signal_name
    if ending.last_words:
        record.notes["progress"] = f"last progress: {ending.last_words}"
    tail = log_tail(log_path(run_options.out, trial))
    if tail is not None:
        record.notes["log"] = tail
    return record


def _status(run_options: RunOptions, ending: Ending, fault: str) -> tuple[Status, str, str | None]:
    """Return status, reason, and the signal that is the reason."""
    code = ending.exit_code
    if ending.bad_message:
        return "error", f"it was ended because it wrote {ending.bad_message}, to the pipe of its messages", None
    if ending.limit == "timeout" and run_options.timeout is not None:
        return "timeout", f"it ran for longer than {shown_seconds(run_options.timeout)}, its timeout", None
    if ending.limit == "oom" and run_options.memory is not None:
        allowed = shown_bytes(run_options.memory)
        return "oom", f"its processes held {shown_bytes(ending.held)} of memory, and may hold {allowed} (memory)", None
    if ending.unwritten:
        return "error", f"its result {ending.last_words or 'cannot be written'}", None
    if code == SERVER_GONE:
        return "killed", ending_text(code), None
    if code == 0 and fault == NO_RECORD:
        return "error", f"{ending_text(code)} before it left a result", None
    if code is None or code >= 0:
        return "error", f"{ending_text(code)} and {fault}", None
    name = signal_name(-code)
    if name == "SIGKILL" and ending.out_of_memory:
        return "oom", "the system was out of memory and ended the process; run fewer --jobs or give a --memory", None
    reason = ending_text(code)
    if name == "SIGKILL":
        reason += "; if no user sent it, the system was out of memory: run with fewer --jobs or a smaller batch"
    return "killed", reason, name
