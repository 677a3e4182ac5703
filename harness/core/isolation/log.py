"""The log of a process: all that it prints up to a limit, and in the end the last of what it printed beyond.

The process prints into a pipe, which a thread of its parent reads: a file that the process wrote itself could fill the
disk before its size is checked.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from multiprocessing.connection import Connection, wait
from pathlib import Path

HEAD = 1 << 22  # bytes from the beginning of the output that are kept,
TAIL = 1 << 16  # and from its end
READ = 1 << 16  # bytes per read
LOOK_SECONDS = 0.5  # between two looks whether the process has ended
LAST_SECONDS = 2.0  # for what is still printed after the end of the process, by processes that cannot be ended


class Log(threading.Thread):
    """Write what arrives in a pipe to a file of at most about HEAD + TAIL bytes, until its other end is closed."""

    def __init__(self, output: Connection, path: Path) -> None:
        super().__init__(name=f"log {path.name}", daemon=True)
        self._output = output
        self._path = path.absolute()
        self._end = float("inf")

    def run(self) -> None:
        """Read until the end of the output; a disk that is full loses the log, and does not stop the process."""
        printed, tail = 0, b""
        with self._output:
            self._write(b"", "wb")
            while time.monotonic() < self._end:
                if not wait([self._output], LOOK_SECONDS):
                    continue
                data = os.read(self._output.fileno(), READ)
                if not data:
                    break
                room = max(0, HEAD - printed)
                printed += len(data)
                tail = (tail + data[room:])[-TAIL:]
                if room:
                    self._write(data[:room])
            if left_out := max(0, printed - HEAD - TAIL):
                note = f"[{left_out:,} bytes are left out here: a log keeps the first {HEAD:,} and the last {TAIL:,}]"
                self._write(f"\n{note}\n".encode())
            self._write(tail)

    def finish(self) -> None:
        """Wait until everything that the ended process has printed is in the file."""
        self._end = time.monotonic() + LAST_SECONDS
        self.join()

    def _write(self, data: bytes, mode: str = "ab") -> None:
        with contextlib.suppress(OSError), self._path.open(mode) as file:
            file.write(data)
