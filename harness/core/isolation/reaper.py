"""Ensure that no process of third-party code outlives the process that started it, however that one ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Self

from harness.core.isolation.process import Child


class Reaper:
    """A process that ends the process groups that this one leaves behind when it is killed (see `reap.py`)."""

    def __enter__(self) -> Self:
        self._process: subprocess.Popen[bytes] | None = None
        if hasattr(os, "killpg"):
            script = Path(__file__).with_name("reap.py")
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            with contextlib.suppress(OSError):
                if self._process.stdin is not None:
                    self._process.stdin.close()
            self._process.wait()

    def watch(self, child: Child) -> None:
        """Register a process group to be ended together with this process."""
        self._say(f"+{child.pid}\n")

    def forget(self, child: Child) -> None:
        """Unregister a process group that has ended."""
        self._say(f"-{child.pid}\n")

    def _say(self, line: str) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError):  # without a reaper, children watch for this process's end
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
