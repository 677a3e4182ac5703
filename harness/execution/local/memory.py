"""What memory the processes of a trial hold, and what becomes of one that holds too much.

Of the ways to limit it, none is enough alone. RLIMIT_AS counts address space, of which torch and CUDA reserve many
times what they use. A control group would be exact, but is at hand only where an administrator has delegated one.
So the supervisor looks, ten times a second, at what the processes of a trial hold, and ends a trial that is above
its limit with a record that says so; and each process on the CPU is given an RLIMIT_DATA beyond the limit, which
stops it in the tenth of a second in between, and refuses at once what could never fit.

What counts is memory that nobody else can have meanwhile: anonymous and shared memory and what of it was swapped
out. Mapped files do not count: libraries, and data sets in the cache, are dropped by the system as it needs to.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

LOOK_SECONDS = 0.1  # between two looks at the memory of known processes
SEARCH_SECONDS = 1.0  # between two searches for processes that a trial has started
SLACK = 256 << 20  # bytes by which RLIMIT_DATA lies above one and a quarter of the limit
HELD = ("RssAnon", "RssShmem", "VmSwap")

_FIELD = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


def held(pid: int) -> int:
    """Bytes that a process holds; 0 for one that is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    fields = dict(_FIELD.findall(text))
    return 1024 * sum(int(fields.get(name, 0)) for name in HELD)


def groups_now() -> dict[int, list[int]]:
    """Process group -> its processes."""
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  a look at every process, once a second, should cost little
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                file = os.open(f"/proc/{name}/stat", os.O_RDONLY)
                try:
                    group = int(os.read(file, 512).rpartition(b")")[2].split()[2])
                finally:
                    os.close(file)
                found.setdefault(group, []).append(int(name))
    return found


class MemoryWatch:
    """Looks after the process groups of running trials.

    Args:
        limit: bytes that the processes of one group may hold together.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._members: dict[int, list[int]] = {}
        self._searched = self._looked = 0.0

    def over(self, groups: Iterable[int]) -> dict[int, int]:
        """Group -> bytes that it holds, of those above the limit; none before it is time for another look."""
        now = time.monotonic()
        if now - self._looked < 0.9 * LOOK_SECONDS:
            return {}
        self._looked = now
        if now - self._searched >= SEARCH_SECONDS:
            self._searched = now
            self._members = groups_now()
        found = {group: sum(map(held, self._members.get(group, [group]))) for group in groups}
        return {group: amount for group, amount in found.items() if amount > self.limit}


def limit_this_process(limit: int) -> None:
    """Keep this process and its children from racing past the limit between two looks (where the system can)."""
    try:
        import resource
    except ImportError:
        return
    with contextlib.suppress(OSError, ValueError):
        text = Path("/proc/self/status").read_text(encoding="utf-8")
        there = 1024 * int(dict(_FIELD.findall(text))["VmData"])
        bound = there + limit + limit // 4 + SLACK
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (bound if hard < 0 else min(bound, hard), hard))


def kernel_kills(root: Path = Path("/")) -> int | None:
    """How many processes the kernel has killed for want of memory, as near to this one's group as it says; or None.

    A process that ends by SIGKILL while this number grows was one of them.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                file = root / "sys/fs/cgroup" / path.lstrip("/") / "memory.events"
            elif controllers == "memory":
                file = root / "sys/fs/cgroup/memory" / path.lstrip("/") / "memory.oom_control"
            else:
                continue
            if file.is_file() and (found := _oom_kill(file)) is not None:
                return found
    with contextlib.suppress(OSError):
        return _oom_kill(root / "proc/vmstat")
    return None


def _oom_kill(file: Path) -> int | None:
    found = re.search(r"^oom_kill (\d+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return int(found[1]) if found else None
