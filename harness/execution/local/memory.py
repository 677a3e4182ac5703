"""Watch the memory that the processes of a trial hold, and find trials above their limit.

No single way to limit memory is sufficient. RLIMIT_AS counts address space, of which torch and CUDA reserve many
times what they use. A control group would be exact, but is available only where an administrator has delegated one.
So the supervisor measures, ten times a second, the memory of a trial's processes, and ends a trial above its limit
with a record that says so; and each process on the CPU gets an RLIMIT_DATA beyond the limit, which stops it within
the tenth of a second in between, and refuses at once an allocation that could never fit.

Memory counts if no other process can have it meanwhile: anonymous and shared memory, swapped or not. Mapped files
do not count: the system drops libraries and cached data sets when it needs the space.
"""

from __future__ import annotations

import contextlib
import re
import resource
import time
from collections.abc import Collection
from pathlib import Path

from harness.core.isolation.descendants import descendants

LOOK_SECONDS = 0.1  # between two measurements of the same processes
SEARCH_SECONDS = 1.0  # between two searches for processes that a trial has started
SLACK = 256 << 20  # bytes by which RLIMIT_DATA lies above one and a quarter of the limit
HELD = ("RssAnon", "RssShmem", "VmSwap")

_FIELD = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


def held(pid: int) -> int:
    """Return the bytes that a process holds; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    fields = dict(_FIELD.findall(text))
    return 1024 * sum(int(fields.get(name, 0)) for name in HELD)


class MemoryWatch:
    """Watch the processes of running trials; one and its descendants may hold `limit` bytes together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._below: dict[int, set[int]] = {}
        self._searched = self._looked = 0.0

    def over(self, processes: Collection[int]) -> dict[int, int]:
        """Return process -> bytes that it and its descendants hold, if above the limit; empty until it is due again."""
        now = time.monotonic()
        if now - self._looked < 0.9 * LOOK_SECONDS:
            return {}
        self._looked = now
        if now - self._searched >= SEARCH_SECONDS:
            self._searched = now
            self._below = {pid: descendants(pid) for pid in processes}
        amounts = {pid: sum(map(held, {pid, *self._below.get(pid, ())})) for pid in processes}
        return {pid: amount for pid, amount in amounts.items() if amount > self.limit}


def limit_this_process(limit: int) -> None:
    """Keep this process and its children from exceeding the limit between two measurements, if the system can."""
    with contextlib.suppress(OSError, ValueError):
        text = Path("/proc/self/status").read_text(encoding="utf-8")
        there = 1024 * int(dict(_FIELD.findall(text))["VmData"])
        bound = there + limit + limit // 4 + SLACK
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (bound if hard < 0 else min(bound, hard), hard))
