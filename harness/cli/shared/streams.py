"""Prepare the streams and variables that a command inherits: closed or full streams, the backend of a notebook."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

from harness.core.texts import visible


def prepare() -> None:
    """Open standard streams that are closed, make them robust, and draw without a display.

    Files that are opened later would get the numbers of closed streams, and their content what other code prints.
    """
    os.environ["MPLBACKEND"] = "agg"  # that of a notebook is a module which a command may not have
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = _robust(sys.stdout, 1, Escaping)
    sys.stderr = _robust(sys.stderr, 2, io.TextIOWrapper)


def fault() -> str:
    """Return why standard output could not be written; empty if it was."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.fault if isinstance(raw, Forgiving) else ""


def _robust(stream: TextIO | None, number: int, text: type[io.TextIOWrapper]) -> TextIO:
    """Return a stream that replaces characters which its encoding lacks, and forgives errors; others unchanged."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")  # so that an arrow in a table does not end a run on an ASCII terminal
    buffer = getattr(stream, "buffer", None)
    if stream is not None and type(getattr(buffer, "raw", buffer)) is not io.FileIO:  # of a test or a notebook
        return stream
    encoding = "utf-8" if stream is None else stream.encoding
    lines = number == 2 or os.isatty(number) or bool(getattr(stream, "write_through", False))
    raw: Any = Forgiving(number, "wb", closefd=False)
    return text(io.BufferedWriter(raw), encoding=encoding, errors="replace", line_buffering=lines)


class Forgiving(io.FileIO):
    """A file that ignores what it cannot write, except when its reader has gone."""

    fault = ""

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        """See `io.RawIOBase`."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self.fault = error.strerror or str(error)
            return memoryview(data).nbytes


class Escaping(io.TextIOWrapper):
    """Standard output, with control characters as escapes: names of files and columns may have any."""

    def write(self, text: str) -> int:
        """See `io.TextIOBase`."""
        super().write(visible(text))
        return len(text)
