"""Ensure that no process of third-party code outlives the process that started it, however that one ends.

Run as a script, this file ends the process groups that a killed process leaves behind. That process holds its standard
input, in which lines "+PID" and "-PID" list the groups that run; the input ends when that process ends, for whatever
reason. A child cannot do this alone, because one that hangs inside a library may never check.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Self

LONGEST = 5.0  # seconds until a reaper that does not end is killed
PERIOD = 0.5  # seconds between two looks at the fork server

if TYPE_CHECKING:  # the script imports nothing of this project
    from harness.core.isolation.process import Child


class Reaper:
    """A process that ends the process groups that this one leaves behind when it is killed.

    While it runs, a thread of this process continues the fork server whenever third-party code has stopped it.
    """

    def __enter__(self) -> Self:
        reading, self._pipe = os.pipe()
        command, nowhere = [sys.executable, "-I", "-S", __file__], subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=reading, stdout=nowhere, stderr=nowhere, start_new_session=True)
        os.close(reading)
        self._over = threading.Event()
        threading.Thread(target=self._keep_server_running, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        os.close(self._pipe)
        try:
            self._process.wait(LONGEST)
        except subprocess.TimeoutExpired:  # third-party code has stopped it
            self._process.kill()
            self._process.wait()

    def watch(self, child: Child) -> None:
        """Register a process group to be ended together with this process."""
        self._say(f"+{child.pid}\n")

    def forget(self, child: Child) -> None:
        """Unregister a process group that has ended."""
        self._say(f"-{child.pid}\n")

    def _keep_server_running(self) -> None:
        """Continue the fork server if a process has stopped it, as all others wait for the server."""
        from harness.core.isolation.descendants import continue_server

        while not self._over.wait(PERIOD):
            continue_server()

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # without a reaper, children watch for this process's end
            os.write(self._pipe, line.encode())


def main() -> None:
    """Read standard input until its end, then end the groups that are left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
