"""Describe how a process ended and what it printed last."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

LOG_TAIL = 60  # lines; the stack of a crash in a model is long, and begins with its cause
LOG_TAIL_BYTES = 32 << 10
SERVER_GONE = 255  # exit code of a process whose fork server ended before it


def ending_text(exit_code: int | None) -> str:
    """Say how a process ended, such as "the process was ended by SIGSEGV (Segmentation fault)"."""
    if exit_code == SERVER_GONE:
        return "the process ended together with the server that started it"
    if exit_code is None or exit_code >= 0:
        return f"the process ended with exit code {exit_code}"
    return f"the process was ended by {signal_name(-exit_code)} ({signal.strsignal(-exit_code) or 'unknown'})"


def signal_name(number: int) -> str:
    """Return a signal's name, such as "SIGSEGV"; a number without a name is returned as text."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def log_tail(path: Path, lines: int = LOG_TAIL) -> str | None:
    """Return the last lines of a log of any length; None if there is none."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - LOG_TAIL_BYTES))
        return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-lines:])
    return None
