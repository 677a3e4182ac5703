"""Find and end the processes that third-party code starts, in whatever group or session they are.

A process that calls setsid leaves its process group, and one whose parent ends gets another parent. Linux gives such
an orphan to the nearest ancestor that has asked for it (PR_SET_CHILD_SUBREAPER): to the process of a trial while that
runs, so that its descendants stay below it; afterwards to the fork server, whose other children are known.

A control group would find them too, but only where an administrator has delegated one.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Collection
from multiprocessing import forkserver

import psutil

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # from <linux/prctl.h>
CLIENT_VARIABLE = "INVERTBENCH_CLIENT"  # with the process that starts the fork server, in its environment
LONGEST = 2.0  # seconds for which processes are ended that start others meanwhile


def adopt_orphans() -> None:
    """Become the parent of every descendant of this process whose parent ends, where the system can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent(parent: int) -> None:
    """Let the system end this process when `parent`, which has forked it, ends, however that ends.

    To Linux the parent is the thread that forked, so fork in one that lasts. A parent that ended before this call, with
    which this process ends now, would send nothing any more.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


def descendants(ancestor: int) -> set[int]:
    """Return the processes below one; none if it has ended."""
    with contextlib.suppress(psutil.Error):
        return {process.pid for process in psutil.Process(ancestor).children(recursive=True)}
    return set()


def end_descendants(ancestor: int, spared: Collection[int] = ()) -> None:
    """End the processes below `ancestor`, except its children in `spared` and the processes below these.

    A process that has received SIGKILL starts no other, so two searches that find no new one are the last. Processes
    that start others faster than a search finds them are given up after `LONGEST` seconds.
    """
    ended, children = set[int](), list[int]()
    begin, empty = time.monotonic(), 0
    while empty < 2 and time.monotonic() - begin < LONGEST:
        with contextlib.suppress(psutil.Error):
            children = [child.pid for child in psutil.Process(ancestor).children() if child.pid not in spared]
        new = {pid for child in children for pid in (child, *descendants(child))} - ended
        for pid in new:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        ended, empty = ended | new, 0 if new else empty + 1


def end_orphans() -> None:
    """End the processes that ended processes of third-party code have left: unknown children of the fork server."""
    server = _server()
    if server is not None:
        end_descendants(server, {child.pid for child in multiprocessing.active_children() if child.pid is not None})


def continue_server() -> None:
    """Let the fork server run on if third-party code has stopped it, as all processes of trials wait for it."""
    server = _server()
    with contextlib.suppress(OSError):
        if server is not None:
            os.kill(server, signal.SIGCONT)


def _server() -> int | None:
    """Return the process of the fork server; None if it does not run."""
    return getattr(forkserver._forkserver, "_forkserver_pid", None)
