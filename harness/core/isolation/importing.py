"""Prepare the fork server; imported there for its effects, before the modules that trials need.

Garbage collection takes an eighth of the import time and frees nothing; a process that the server starts turns it on
again. The server ends with the process that started it, and first ends everything below it, including what trials have
left behind. It leaves its process group, so that no signal to that (of a terminal, `timeout` or `kill`) ends it before.
"""

import atexit
import gc
import os
import warnings

from harness.core.isolation.descendants import adopt_orphans, end_descendants

gc.disable()
os.setsid()
adopt_orphans()
warnings.filterwarnings("ignore", message="forkserver: waitpid returned unexpected pid")
SERVER = os.getpid()


@atexit.register
def _end_all() -> None:
    if os.getpid() == SERVER:  # not in a process that it has started
        end_descendants(SERVER)
