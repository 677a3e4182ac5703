"""The process of one trial: set its limits, run the trial, report its progress."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from harness.core.isolation.messages import BadMessage, Sender, shortened, visible
from harness.core.isolation.process import Context
from harness.core.isolation.process import start_server as start_any_server
from harness.core.run_options import Conditions
from harness.core.settings import Progress, Trial
from harness.datasets import DATASETS
from harness.execution.local.memory import limit_this_process

Work = Callable[[Any, Conditions, Mapping[str, Any], Progress], object]

NO_SPACE_LEFT = 73  # exit code of a trial that could not write what it found; EX_CANTCREAT of <sysexits.h>
MESSAGE_PERIOD = 0.1  # seconds between two progress messages of a trial
LONGEST_TEXT = 300  # characters of one

# Imported once, in the fork server, as together they take longer than many a trial. The kernels, built if need be, are
# there before the first trial starts.
PRELOAD = ("torch", "harness.execution.trial")
PRELOAD_FOR_KERNELS = "harness.core.preload_kernels"
PRELOAD_FOR_TRAINING = "torch._dynamo"  # which the first optimiser imports, in 1.5 seconds


@dataclass(frozen=True)
class Assignment:
    """What a trial's process is handed.

    Attributes:
        trial: what to do.
        conditions: of the run.
        provenance: what the supervisor knows of where the result comes from.
        gpu: what CUDA_VISIBLE_DEVICES is to be; None: as it is.
    """

    trial: Trial
    conditions: Conditions
    provenance: Mapping[str, Any]
    gpu: str | None


def execute(trial: Trial, conditions: Conditions, provenance: Mapping[str, Any], progress: Progress) -> None:
    """Run one trial. The import is here because the supervisor itself needs no torch."""
    import harness.execution.trial

    harness.execution.trial.execute(trial, conditions, provenance, progress)


def start_server(datasets: Collection[str], kernels: bool) -> Context:
    """Start the fork server with what trials import (see `harness.core.isolation.process.start_server`).

    Args:
        datasets: names of the data sets that will be trained on, for what they import; unknown ones are nobody's
            fault here.
        kernels: whether the trials run layers, whose kernels are then loaded, and built if need be.
    """
    needed = [module for name in datasets if name in DATASETS for module in DATASETS[name].imports]
    if datasets:
        needed.append(PRELOAD_FOR_TRAINING)
    if kernels:
        needed.append(PRELOAD_FOR_KERNELS)
    return start_any_server([*PRELOAD, *needed])


def run_assignment(work: Work, given: Assignment, sender: Sender) -> None:
    """The main function of a trial's process."""
    if given.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = given.gpu  # before anything asks the driver
    if given.conditions.memory is not None and given.trial.device == "cpu":
        limit_this_process(given.conditions.memory)
    try:
        work(given.trial, given.conditions, given.provenance, teller(sender))
    except OSError as error:  # a trial's own errors are in its record: this one is about writing it
        with contextlib.suppress(OSError):
            print(f"{type(error).__name__}: {error}", flush=True)
        with contextlib.suppress(OSError):
            sender.send(_message(1.0, f"cannot be written: {error.strerror or error}"))
        os._exit(NO_SPACE_LEFT)


def teller(sender: Sender) -> Progress:
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
                sender.send(_message(fraction, text))

    return progress


def _message(fraction: float, text: str) -> dict[str, Any]:
    return {"fraction": float(fraction), "text": shortened(str(text), LONGEST_TEXT)}


def told(message: Mapping[str, Any]) -> tuple[float, str]:
    """Return the fraction, from 0 to 1, and the text of a progress message; raise BadMessage where it is none."""
    fraction, text = message.get("fraction"), message.get("text")
    if len(message) != 2 or not isinstance(fraction, float) or not isinstance(text, str):
        raise BadMessage(f"{visible(repr(message)[:60])}, which is no message of progress")
    fraction = min(max(fraction, 0.0), 1.0) if math.isfinite(fraction) else 0.0
    return fraction, visible(shortened(text, LONGEST_TEXT + 1)).replace("\n", " ")
