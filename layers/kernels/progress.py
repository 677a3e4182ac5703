"""Tell how far a build is: on standard error, and to the processes that wait for it, in the file of its lock."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

WATCH = 2.0  # seconds between two looks of a waiting process at the progress of the build


class Progress:
    """The progress of a build whose steps take about these seconds of one core, several of them at once."""

    def __init__(self, what: str, seconds: Sequence[float], cores: int, lock: IO[str]) -> None:
        self._what, self._seconds, self._cores, self._lock = what, seconds, max(cores, 1), lock
        self._started = time.monotonic()
        self._expected, self._taken, self._done = 0.0, 0.0, 0  # of the steps that are done
        self._mutex = threading.Lock()
        self._tell()

    def finished(self, step: int, seconds: float) -> None:
        """Note that a step has taken so many seconds."""
        with self._mutex:
            self._expected += self._seconds[step]
            self._taken += seconds
            self._done += 1
            self._tell()

    def failed(self) -> None:
        """Note that the build has ended without a library."""
        self._write(f"building the {self._what} kernels has failed", last=True)

    def _tell(self) -> None:
        text = f"building the {self._what} kernels (once): {self._done} of {len(self._seconds)} steps done"
        if self._done < len(self._seconds):
            text += f", about {self._left():.0f} s left"
        self._write(text, last=self._done == len(self._seconds))

    def _write(self, text: str, last: bool) -> None:
        self._lock.seek(0)
        self._lock.truncate()
        self._lock.write(text)
        self._lock.flush()
        _say(text, last)

    def _left(self) -> float:
        """Return the remaining seconds, from the pace of the steps that are done."""
        pace = self._taken / self._expected if self._done else 1.0
        whole = max(sum(self._seconds) / self._cores, max(self._seconds)) * pace
        return max(whole - (time.monotonic() - self._started), 1.0)


@contextmanager
def watching(lock: IO[str]) -> Iterator[None]:
    """Tell the progress of another process's build, from the file of its lock, while the body waits for the lock."""
    over = threading.Event()

    def watch() -> None:
        told = ""
        while not over.is_set():
            lock.seek(0)
            text = lock.read()
            if text != told:
                _say(f"another process is {text or 'about to build kernels'}")
                told = text
            over.wait(WATCH)
        _say("the other process has ended its build", last=True)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _say(text: str, last: bool = False) -> None:
    """Write a line; on a terminal, in the place of the one before."""
    if sys.stderr is None:
        return
    line = f"\r\x1b[Kinvertbench: {text}" + ("\n" if last else "") if sys.stderr.isatty() else f"invertbench: {text}\n"
    sys.stderr.write(line)
    sys.stderr.flush()
