"""The log of a process: everything that it prints up to a limit; of more, in the end, the beginning and the end.

The process prints into a pipe, which a thread of its parent reads: a file that the process wrote itself could fill the
disk before its size is checked.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import BinaryIO

HEAD = 1 << 20  # bytes from the beginning of the output that are kept,
TAIL = 1 << 22  # and from its end
READ = 1 << 16  # bytes per read
LOOK_SECONDS = 0.5  # between two looks whether the process has ended
LAST_SECONDS = 2.0  # for what is still printed after the end of the process, by processes that cannot be ended


class Log(threading.Thread):
    """Write what arrives in a pipe to a file of at most about HEAD + TAIL bytes, until its other end is closed."""

    def __init__(self, output: Connection, path: Path) -> None:
        super().__init__(name=f"log {path.name}", daemon=True)
        self._output = output
        self._path = path
        self._head = self._beyond = self._kept = 0  # bytes: of the head, after it, and of those the kept ones
        self._tail: deque[bytes] = deque()
        self._end = float("inf")

    def run(self) -> None:
        """Read until the end of the output; a disk that is full loses the log, and does not stop the process."""
        with contextlib.ExitStack() as later:
            later.callback(self._output.close)
            file: BinaryIO | None = None
            with contextlib.suppress(OSError):
                file = later.enter_context(self._path.open("wb", buffering=0))
            while time.monotonic() < self._end:
                if not wait([self._output], LOOK_SECONDS):
                    continue
                data = os.read(self._output.fileno(), READ)
                if not data:
                    break
                with contextlib.suppress(OSError):
                    self._add(file, data)
            if self._beyond > TAIL:
                with contextlib.suppress(OSError):
                    self._rewrite(file)

    def finish(self) -> None:
        """Wait until everything that the ended process has printed is in the file."""
        self._end = time.monotonic() + LAST_SECONDS
        self.join()

    def _add(self, file: BinaryIO | None, data: bytes) -> None:
        rest = data[HEAD - self._head :]
        self._head += len(data) - len(rest)
        self._beyond += len(rest)
        self._kept += len(rest)
        self._tail.append(rest)
        while self._kept - len(self._tail[0]) >= TAIL:
            self._kept -= len(self._tail.popleft())
        if file is not None and self._beyond - len(rest) <= TAIL:
            file.write(data)

    def _rewrite(self, file: BinaryIO | None) -> None:
        """Replace what follows the head."""
        if file is not None:
            file.seek(HEAD)
            file.truncate()
            left_out = self._beyond - self._kept
            note = f"\n[{left_out:,} bytes are left out here: a log keeps the first {HEAD:,} and the last {TAIL:,}]\n"
            file.write(note.encode() + b"".join(self._tail))
