"""Tell how far a build is, on standard error."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence


class Progress:
    """The progress of a build whose steps take about these seconds of one core, several of them at once."""

    def __init__(self, what: str, seconds: Sequence[float], cores: int) -> None:
        self._what, self._seconds, self._cores = what, seconds, max(cores, 1)
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
        say(f"building the {self._what} kernels has failed", last=True)

    def _tell(self) -> None:
        text = f"building the {self._what} kernels (once): {self._done} of {len(self._seconds)} steps done"
        if self._done < len(self._seconds):
            text += f", about {self._left():.0f} s left"
        say(text, last=self._done == len(self._seconds))

    def _left(self) -> float:
        """Return the remaining seconds, from the pace of the steps that are done."""
        pace = self._taken / self._expected if self._done else 1.0
        whole = max(sum(self._seconds) / self._cores, max(self._seconds)) * pace
        return max(whole - (time.monotonic() - self._started), 1.0)


def say(text: str, last: bool = False) -> None:
    """Write a line; on a terminal, in the place of the one before."""
    if sys.stderr is None:
        return
    line = f"\r\x1b[Kinvertbench: {text}" + ("\n" if last else "") if sys.stderr.isatty() else f"invertbench: {text}\n"
    sys.stderr.write(line)
    sys.stderr.flush()
