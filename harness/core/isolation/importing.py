"""Prepare the fork server; imported there for its effects, before the modules that trials need.

The search for garbage takes an eighth of the time of the imports, which leave none. A process that the server starts
turns it on again. The server ends with the process that has started it, and ends everything below it first: also what
trials have started and left, which becomes its children. It leaves its process group, so that a signal to that (from a
terminal, `timeout` or `kill`) does not end it before.
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
