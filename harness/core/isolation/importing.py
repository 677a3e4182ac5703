"""Prepare the fork server; imported there for its effects, before the modules that trials need.

Garbage collection takes an eighth of the import time and frees nothing; a process that the server starts turns it on
again. The server ends with the process that started it, and first ends everything below it, including what trials have
left behind. It leaves its process group, so that no signal to that (of a terminal, `timeout` or `kill`) ends it before.
It would notice that end only after its imports, which take many seconds on a busy machine: a thread looks until the
first fork, before which it ends, as a process must have no other thread when it forks.
"""

import atexit
import gc
import os
import threading
import warnings

from harness.core.isolation.descendants import CLIENT_VARIABLE, adopt_orphans, end_descendants

gc.disable()
os.setsid()
adopt_orphans()
warnings.filterwarnings("ignore", message="forkserver: waitpid returned unexpected pid")
SERVER = os.getpid()
CLIENT = int(os.environ.pop(CLIENT_VARIABLE, os.getppid()))  # which may have ended
PERIOD = 0.5  # seconds between two looks


@atexit.register
def _end_all() -> None:
    if os.getpid() == SERVER:  # not in a process that it has started
        end_descendants(SERVER)


def _end_with_client() -> None:
    while not _forks.wait(PERIOD):
        if os.getppid() != CLIENT:
            end_descendants(SERVER)  # such as a compiler of kernels
            os._exit(1)


def _end_thread() -> None:
    _forks.set()
    _thread.join()


_forks = threading.Event()
_thread = threading.Thread(target=_end_with_client, daemon=True)
_thread.start()
os.register_at_fork(before=_end_thread)
