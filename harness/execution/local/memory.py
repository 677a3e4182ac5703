"""Watch the memory that the processes of a trial hold, and find trials above their limit.

No single way to limit memory is sufficient. RLIMIT_AS counts address space, of which torch and CUDA reserve many
times what they use. A control group would be exact, but is available only where an administrator has delegated one.
So the supervisor measures, five times a second, the memory of a trial's processes, and ends a trial above its limit
with a record that says so.

Memory counts if no other process can have it meanwhile: anonymous and shared memory, swapped or not. Mapped files
do not count: the system drops libraries and cached data sets when it needs the space.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path

from harness.core.isolation.descendants import children_now, descendants

LOOK_SECONDS = 0.2  # between two measurements
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
        self._looked = 0.0

    def over(self, processes: Iterable[int]) -> dict[int, int]:
        """Return process -> bytes that it and its descendants hold, if above the limit; empty until it is due again."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS / 2:
            return {}
        self._looked = now
        children = children_now()
        amounts = {pid: sum(map(held, {pid} | descendants([pid], children))) for pid in processes}
        return {pid: amount for pid, amount in amounts.items() if amount > self.limit}
