"""Trials that go wrong in every way, for the executor: what its processes import, so no test lies here."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import torch

from harness.errors import Diverged
from harness.records import blank_record
from harness.trials.trial import execute
from layers import UnsupportedShape


def behave(trial, root, out, progress):
    """Do what the trial's sweep or label names."""
    name = trial.sweep if trial.kind == "runtime" else trial.label
    folder = out / "notes"
    folder.mkdir(exist_ok=True, parents=True)
    begin = time.time()
    (folder / f"{trial.id}.pid").write_text(str(os.getpid()))
    progress(0.0, name)
    record = BEHAVIOURS[name.partition(" ")[0]](trial)
    (folder / f"{trial.id}.json").write_text(json.dumps([begin, time.time()]))
    return record


def fine(trial):
    record = blank_record(trial, "ok", None)
    record.rows = [{"layer": "any", "parameters": 3, "threads": torch.get_num_threads()}]
    return record


def sleep(trial):
    time.sleep(0.3)
    return fine(trial)


def sleep_long(trial):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])  # a child of the trial's own
    time.sleep(60)
    return fine(trial)


def raise_error(trial):
    print("a word on standard output", flush=True)
    raise ValueError("levels = 9 is too many")


def diverge(trial):
    raise Diverged("training loss is nan at step 7")


def unsupported(trial):
    raise UnsupportedShape("butterfly: D = 49 is odd")


def too_large(trial):
    return torch.empty(1 << 60)


def kill(trial):
    os.kill(os.getpid(), signal.SIGKILL)


def segfault(trial):
    ctypes.string_at(0)


def leave(trial):
    print("leaving early", flush=True)
    os._exit(3)


def leave_politely(trial):
    sys.exit("enough")


def not_a_number(trial):
    record = fine(trial)
    record.rows[0]["bits_per_dim"] = float("nan")
    return record


BEHAVIOURS = {
    behaviour.__name__: behaviour
    for behaviour in (
        fine,
        sleep,
        sleep_long,
        raise_error,
        diverge,
        unsupported,
        too_large,
        kill,
        segfault,
        leave,
        leave_politely,
        not_a_number,
    )
}

work = partial(execute, run=behave)
