"""The process of one trial: set its limits, run the trial, report its progress."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import time
from collections.abc import Callable, Collection, Mapping
from multiprocessing.connection import Connection
from typing import Any

from harness.core.isolation.messages import BadMessage, send
from harness.core.isolation.process import Context, start_server
from harness.core.run_options import RunOptions
from harness.core.settings import Progress
from harness.core.texts import shortened, visible
from harness.core.third_party import looking_in
from harness.core.trial import Trial, trial_class
from harness.datasets import DATASETS
from harness.execution.local.memory import limit_this_process

Work = Callable[[Any, RunOptions, Mapping[str, Any], Progress], object]

NO_SPACE_LEFT = 73  # exit code of a trial without room for its record; EX_CANTCREAT of <sysexits.h>
MESSAGE_PERIOD = 0.1  # seconds between two progress messages of a trial
LONGEST_TEXT = 300  # characters of a progress text

# Imported once, in the fork server, as together these imports take longer than many a trial. The kernels are loaded,
# and built if necessary, before the first trial starts.
PRELOAD = ("torch", "harness.execution.trial")
PRELOAD_FOR_KERNELS = "harness.core.preload_kernels"
# Imported by the first optimiser and the first profiler, in 1.5 seconds; with it sympy, by the first gradient.
PRELOAD_FOR_TRAINING = "torch._dynamo"


def start_trial_server(kinds: Collection[str], datasets: Collection[str], kernels: bool) -> Context:
    """Start the fork server with what trials import: for their kinds and data sets, and for layers with kernels."""
    needed = [trial_class(kind).run_path() for kind in kinds]
    needed += [module for name in datasets if name in DATASETS for module in DATASETS[name].imports]
    if datasets or kernels:
        needed.append(PRELOAD_FOR_TRAINING)
    if kernels:
        needed.append(PRELOAD_FOR_KERNELS)
    return start_server([*PRELOAD, *needed])


@looking_in(())  # third-party code may change the working directory
def run_in_process(
    work: Work | None,
    trial: Trial,
    run_options: RunOptions,
    provenance: Mapping[str, Any],
    gpu: str | None,
    pipe: Connection,
) -> None:
    """Run a trial, by `work` in place of its kind, as the main function of its process.

    `gpu` is its CUDA_VISIBLE_DEVICES, None: unchanged.

    A full disk concerns all trials. What else prevents writing, such as a limit that a layer has set, ends this one.
    """
    if work is None:
        from harness.execution.trial import execute  # here: the supervisor needs no torch

        work = execute
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # before the first call to the driver
    if run_options.memory is not None and trial.device == "cpu":
        limit_this_process(run_options.memory)
    try:
        work(trial, run_options, provenance, progress_sender(pipe))
    except OSError as error:  # other errors are in the trial's record: this one occurred while writing it
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        with contextlib.suppress(OSError):
            send(pipe, _message(1.0, f"cannot be written: {error.strerror}"))
        os._exit(NO_SPACE_LEFT)


def progress_sender(pipe: Connection) -> Progress:
    """Return a progress callback that sends at most one message per period, and ignores a closed pipe.

    A pipe closes when the supervisor is killed, which ends the trial too. Its error must not become the trial's record.
    """
    last = 0.0

    def progress(fraction: float, text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= MESSAGE_PERIOD:
            last = now
            with contextlib.suppress(OSError):
                send(pipe, _message(fraction, text))

    return progress


def _message(fraction: float, text: str) -> dict[str, Any]:
    return {"fraction": float(fraction), "text": shortened(str(text), LONGEST_TEXT)}


def read_progress(message: Mapping[str, Any]) -> tuple[float, str]:
    """Return fraction (0 to 1) and text of a progress message; raise BadMessage if it is not one."""
    fraction, text = message.get("fraction"), message.get("text")
    if len(message) != 2 or not isinstance(fraction, float) or not isinstance(text, str):
        raise BadMessage(f"{visible(repr(message)[:60])}, which is not a progress message")
    fraction = min(max(fraction, 0.0), 1.0) if math.isfinite(fraction) else 0.0
    return fraction, visible(shortened(text, LONGEST_TEXT + 1)).replace("\n", " ")
