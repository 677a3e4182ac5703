"""The process of one trial: how it is started, and what it does before and around the trial itself.

A process is forked from a clean server that has imported what trials need and has computed nothing
("forkserver"), which makes its start a matter of milliseconds and leaves no state of one trial to the next.

Python imports the main module again in every process that it starts this way: a script that runs trials must do
so under `if __name__ == "__main__":`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path
from typing import Any

from harness.conditions import Conditions
from harness.datasets import DATASETS
from harness.execution.memory import limit_this_process
from harness.settings import Progress, Trial

Work = Callable[[Any, Conditions, Mapping[str, Any], Progress], object]

NO_SPACE_LEFT = 73  # exit code of a trial that could not write what it found; EX_CANTCREAT of <sysexits.h>
MESSAGE_PERIOD = 0.1  # seconds between two progress messages of a trial
PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>
OOM_SCORE = "500"  # of 1000; where the kernel has to choose, it ends a trial, not its supervisor

# Imported once, in the fork server, as together they take longer than many a trial. The kernels, built if need be, are
# there before the first trial starts.
PRELOAD = ("torch", "harness.trials.trial")
PRELOAD_FOR_KERNELS = "harness.trials.preload_kernels"


@dataclass(frozen=True)
class Assignment:
    """What a trial's process is handed.

    Attributes:
        trial: what to do.
        conditions: of the run.
        provenance: what the supervisor knows of where the result comes from.
        gpu: what CUDA_VISIBLE_DEVICES is to be; None: as it is.
        log: file for all that the process prints.
    """

    trial: Trial
    conditions: Conditions
    provenance: Mapping[str, Any]
    gpu: str | None
    log: Path


def execute(trial: Trial, conditions: Conditions, provenance: Mapping[str, Any], progress: Progress) -> None:
    """Run one trial. The import is here because the supervisor itself needs no torch."""
    import harness.trials.trial

    harness.trials.trial.execute(trial, conditions, provenance, progress)


def start_server(datasets: Iterable[str], kernels: bool) -> ForkServerContext | SpawnContext:
    """Start the fork server, if there is one and it does not run yet, and return before it is done importing.

    A caller that will need it and has seconds of planning to do starts it first.

    Args:
        datasets: names of the data sets that will be trained on, for what they import; unknown ones are nobody's
            fault here.
        kernels: whether the trials run layers, whose kernels are then loaded, and built if need be.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    needed = [module for name in datasets if name in DATASETS for module in DATASETS[name].imports]
    if kernels:
        needed.append(PRELOAD_FOR_KERNELS)
    context.set_forkserver_preload(list(dict.fromkeys([*PRELOAD, *needed])))
    # Ctrl-C goes to every process of the terminal; a fork server that is still importing would die of it aloud.
    # It inherits this block, and each trial lifts its own. The tracker's start would lift it here: it goes first.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


def run_assignment(work: Work, given: Assignment, messages: Connection) -> None:
    """The main function of a trial's process."""
    _detach()
    with given.log.open("wb", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    faulthandler.enable(all_threads=False)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE, encoding="ascii")
    if given.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = given.gpu  # before anything asks the driver
    if given.conditions.memory is not None and given.trial.device == "cpu":
        limit_this_process(given.conditions.memory)
    try:
        work(given.trial, given.conditions, given.provenance, teller(messages))
    except OSError as error:  # a trial's own errors are in its record: this one is about writing it
        with contextlib.suppress(OSError):
            print(f"{type(error).__name__}: {error}", flush=True)
        with contextlib.suppress(OSError):
            messages.send((1.0, f"cannot be written: {error.strerror or error}"))
        os._exit(NO_SPACE_LEFT)


def teller(messages: Connection) -> Progress:
    """What a trial tells its progress with: seldom, and without harm once nobody listens.

    When the supervisor is killed, the trial is about to be. An error of this pipe must not become its record.
    """
    last = 0.0

    def progress(fraction: float, text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= MESSAGE_PERIOD:
            last = now
            with contextlib.suppress(OSError):
                messages.send((float(fraction), str(text)))

    return progress


def _detach() -> None:
    """Leave the terminal's process group, and make sure of an end with the supervisor, however it ends.

    The supervisor's reaper ends the group of this process; until that knows of it, a thread watches for the
    supervisor's end. The parent of this process is the fork server, whose end the kernel watches for.
    """
    if hasattr(os, "setsid"):
        os.setsid()
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_supervisor, daemon=True).start()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _end_with_supervisor() -> None:
    supervisor = multiprocessing.parent_process()
    if supervisor is None:
        return
    supervisor.join()
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
