"""Trials that fail in every way, which processes of the supervisor import by name; it is also a supervisor of its own.

Called as `python faulty_trials.py OUT TRIAL ...`, it runs trials from their JSON.
"""

import ctypes
import errno
import gc
import json
import os
import pickle
import resource
import signal
import stat
import struct
import subprocess
import sys
import time
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path

import torch

from harness.core.errors import Diverged
from harness.core.layer_classes import resolve_layer
from harness.core.records import blank_record
from harness.core.run_options import RunOptions
from harness.execution.local.slots import Slots
from harness.execution.local.supervisor import run_trials
from harness.execution.progress import make_reporter
from harness.execution.trial import execute
from harness.kinds.parameters.trial import ParametersTrial
from layers import UnsupportedShape


def behave(trial, root, out, progress, checkpoints):
    """Call the behaviour named by the sweep or label of the trial."""
    name = trial.sweep if trial.kind == "runtime" else trial.label
    folder = out / "notes"
    folder.mkdir(exist_ok=True, parents=True)
    begin = time.time()
    (folder / f"{trial.id}.pid").write_text(str(os.getpid()))
    progress(0.0, name)
    record = globals()[name.partition(" ")[0]](trial)
    (folder / f"{trial.id}.json").write_text(json.dumps([begin, time.time()]))
    return record


def fine(trial):
    record = blank_record(trial, "ok", None)
    record.rows = [{"layer": "any", "parameters": 3}]
    record.notes["threads"] = str(torch.get_num_threads())
    record.notes["garbage"] = f"{gc.isenabled()} {gc.get_freeze_count() > 100_000}"
    return record


def sleep(trial):
    time.sleep(0.3)
    return fine(trial)


def start_daemon(action="pass"):
    """Start a process in its own session, whose parent ends at once; its command line names this process."""
    code = f"import os, time; os.fork() and os._exit(0); os.setsid(); {action}; time.sleep(60)"
    subprocess.run([sys.executable, "-c", code, f"daemon of {os.getpid()}"], check=True)


def sleep_long(trial):
    start_daemon()
    time.sleep(60)
    return fine(trial)


def leave_a_daemon(trial):
    start_daemon()
    return fine(trial)


def raise_error(trial):
    print("a word on standard output", flush=True)
    raise ValueError("levels = 9 is too many")


def print_much(trial):
    print("the first line", flush=True)
    for _ in range(1000):
        os.write(1, b"x" * 32_000)
    print("\nthe last line", flush=True)
    os._exit(3)


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


def hang(trial):
    """Ignore signals and never return to Python, like a library that waits forever."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    while True:
        ctypes.PyDLL(None).sleep(60)  # holds the GIL


def take_memory(trial):
    """Allocate in small steps and write every page."""
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20)) * 8)
        time.sleep(0.002)


def take_memory_in_a_daemon(trial):
    start_daemon("kept = bytearray(b'1') * (5 << 28)")
    time.sleep(60)


def find_no_space_elsewhere(trial):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a cache of the layer")


def stop_the_server(trial):
    os.kill(os.getppid(), signal.SIGSTOP)
    return fine(trial)


def stop_the_server_and_hang(trial):
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(60)


def open_no_files(trial):
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    return fine(trial)


def write_no_bytes(trial):
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    return fine(trial)


def fill_the_disk_at_the_record(trial):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    os.fsync = full  # only in this process, which ends after its record
    return fine(trial)


def visible_gpus(trial):
    record = fine(trial)
    record.notes["gpus"] = os.environ["CUDA_VISIBLE_DEVICES"]
    return record


def leave_politely(trial):
    sys.exit("enough")


def not_a_number(trial):
    record = fine(trial)
    record.rows[0]["parameters"] = float("nan")
    return record


def change_directory(trial):
    os.chdir("/")
    resolve_layer("theirs.py:Theirs")
    return fine(trial)


def write_to_every_pipe(content):
    """Write to every pipe but that of the resource tracker, which would print its complaints."""
    for number in {*range(3, 256)} - {resource_tracker._resource_tracker._fd}:
        try:
            if stat.S_ISFIFO(os.fstat(number).st_mode):
                left = memoryview(content)
                while left:
                    left = left[os.write(number, left) :]
        except OSError:  # not open, read-only, or without a reader
            continue


def write_four_bytes_and_hang(trial):
    write_to_every_pipe(struct.pack("!i", 1 << 20))
    time.sleep(60)


def ask_for_too_much(trial):
    """Allocate without writing, so that only the limit of the kernel refuses it."""
    return torch.empty(1 << 33, dtype=torch.uint8)


class TouchesAFile:
    def __reduce__(self):
        return open, ("unpickled", "w")


PICKLE = pickle.dumps((TouchesAFile(), "text"))
CONTENTS = {
    "part": struct.pack("!i", 4),  # the length of a message that never follows
    "garbage": b"\x1b[2J\xff\x00 no message\n",
    "types": b'{"fraction": "much", "text": 5}\n',
    "pickle": struct.pack("!i", len(PICKLE)) + PICKLE + b"\n",
}


def write(trial):
    write_to_every_pipe(CONTENTS[trial.label.removeprefix("write ")])
    return fine(trial)


def write_100_megabytes(trial):
    write_to_every_pipe(bytes(100 << 20))
    return fine(trial)


work = partial(execute, run=behave)

if __name__ == "__main__":
    import faulty_trials

    out, *texts = sys.argv[1:]
    trials = list(map(ParametersTrial.model_validate_json, texts))
    with make_reporter(len(trials)) as reporter:
        run_trials(trials, RunOptions(Path(out)), Slots(2, cores=2), reporter, work=faulty_trials.work)
