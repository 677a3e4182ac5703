"""How a trial's process ended, as a record: the one that it left, or one that says why it left none."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.conditions import Conditions, shown_bytes, shown_seconds
from harness.errors import UserError
from harness.records import Record, Status, blank_record, read_record
from harness.settings import Trial

LOG_TAIL = 60  # lines; the stack of a crash in a model is long, and begins with what it was
LOG_TAIL_BYTES = 32 << 10
SERVER_GONE = 255  # what Python says of a process whose fork server has not lived to see its end
FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
"""Signals that a machine or a person sends; a program's own faults end it by others."""

SIGNAL = "signal"
"""The note that names the signal by which a process ended."""


@dataclass(frozen=True)
class Ending:
    """What the supervisor saw of a trial's end.

    Attributes:
        exit_code: of the process, the negated signal's number where one ended it.
        seconds: from its start.
        limit: the limit for which the supervisor ended it, "timeout" or "oom"; None: it did not.
        held: bytes that it held then.
        out_of_memory: whether the kernel killed processes for want of memory while it ran.
        last_words: the last progress that it told.
    """

    exit_code: int | None
    seconds: float
    limit: Status | None = None
    held: int = 0
    out_of_memory: bool = False
    last_words: str = ""


def record_path(out: Path, trial: Trial) -> Path:
    """`out/records/<id>.json`."""
    return out / "records" / f"{trial.id}.json"


def log_path(out: Path, trial: Trial) -> Path:
    """`out/logs/<id>.log`."""
    return out / "logs" / f"{trial.id}.log"


def stamp(path: Path) -> tuple[int, int, int] | None:
    """What tells a file from one that replaces it; None where there is none."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns, facts.st_size


def interrupted(record: Record) -> bool:
    """Whether the trial was ended from outside, which says nothing about it."""
    return record.status == "killed" and record.notes.get(SIGNAL, FROM_OUTSIDE[0]) in FROM_OUTSIDE


def left_record(trial: Trial, out: Path, before: tuple[int, int, int] | None) -> tuple[Record | None, str]:
    """The record that the trial's process wrote, or None and why there is none.

    Args:
        trial: whose.
        out: the suite's folder.
        before: the stamp of the file when the process started: an older record is not this process's.
    """
    path = record_path(out, trial)
    if stamp(path) in (None, before):
        return None, "left no record"
    try:
        return read_record(path), ""
    except UserError as error:
        return None, str(error)


def missing_record(
    trial: Trial, conditions: Conditions, ending: Ending, fault: str, provenance: Mapping[str, Any]
) -> Record:
    """A record for a trial that left none; not yet on disk."""
    status, reason, signal_name = _status(conditions, ending, fault)
    record = blank_record(trial, status, reason)
    record.seconds = ending.seconds
    record.environment = dict(provenance)
    if signal_name is not None:
        record.notes[SIGNAL] = signal_name
    if ending.last_words:
        record.notes["progress"] = f"the last it told: {ending.last_words}"
    tail = log_tail(log_path(conditions.out, trial))
    if tail is not None:
        record.notes["log"] = tail
    return record


def _status(conditions: Conditions, ending: Ending, fault: str) -> tuple[Status, str, str | None]:
    """Status, reason, and the signal that is the reason."""
    code = ending.exit_code
    if ending.limit == "timeout" and conditions.timeout is not None:
        return "timeout", f"it ran for longer than {shown_seconds(conditions.timeout)}, its timeout", None
    if ending.limit == "oom" and conditions.memory is not None:
        allowed = shown_bytes(conditions.memory)
        return "oom", f"its processes held {shown_bytes(ending.held)} of memory, and may hold {allowed} (memory)", None
    if code == SERVER_GONE:
        return "killed", "the process ended together with the server that had started it", None
    if code is None or code >= 0:
        return "error", f"the process ended with exit code {code} and {fault}", None
    name = signal_name(-code)
    if name == "SIGKILL" and ending.out_of_memory:
        return "oom", "the system was out of memory and ended the process; run fewer --jobs or give a --memory", None
    reason = f"the process was ended by {name} ({signal.strsignal(-code) or 'unknown'})"
    if name == "SIGKILL":
        reason += "; if nobody sent it, the system was out of memory: run with fewer --jobs or a smaller batch"
    return "killed", reason, name


def signal_name(number: int) -> str:
    """ "SIGSEGV"; a number without a name stays one."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def log_tail(path: Path) -> str | None:
    """The last lines of a log, however long it is; None where there is none."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - LOG_TAIL_BYTES))
        return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-LOG_TAIL:])
    return None
