"""Run trials, each in a process of its own, so that no trial can harm another or its supervisor.

A process is forked from a clean server that has imported what trials need and has computed nothing
("forkserver"), which makes its start a matter of milliseconds and leaves no state of one trial to the next.
A process that ends without a record, whatever killed it, is given one that says how it ended.

Python imports the main module again in every process that it starts this way: a script that calls
`run_trials` must do so under `if __name__ == "__main__":`.
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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from harness.datasets import DATASETS
from harness.errors import UserError
from harness.progress import Reporter
from harness.records import Record, blank_record, read_record, write_record
from harness.settings import DensityTrial, Progress, RuntimeTrial, Trial
from harness.trials.environment import usable_cores

Work = Callable[[Any, Path | None, Path, Progress], object]

MESSAGE_PERIOD = 0.1  # seconds between two progress messages of a trial
LOG_TAIL = 20  # lines
PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>

# Imported once, in the fork server, as together they take longer than many a trial. The kernels, built if need be, are
# there before the first trial starts.
PRELOAD = ("torch", "harness.trials.trial")
PRELOAD_FOR_KERNELS = "harness.trials.preload_kernels"


def execute(trial: Trial, root: Path | None, out: Path, progress: Progress) -> None:
    """Run one trial. The import is here because the supervisor itself needs no torch."""
    import harness.trials.trial

    harness.trials.trial.execute(trial, root, out, progress)


def default_jobs(trials: Sequence[Trial]) -> int:
    """How many trials run at once: one per GPU, or as many as the cores hold threads for."""
    if not trials:
        return 1
    if any(trial.device == "cuda" for trial in trials):
        import torch

        return max(1, torch.cuda.device_count())
    return max(1, usable_cores() // max(trial.threads for trial in trials))


def run_trials(
    trials: Sequence[Trial],
    root: Path | None,
    out: Path,
    jobs: int,
    reporter: Reporter,
    work: Work = execute,
) -> None:
    """Run every trial and leave one record each in `out/records`, what it printed in `out/logs`.

    Up to `jobs` run side by side, in the given order. Runtime trials come last and run alone, as whatever
    runs beside them would be measured with them. On KeyboardInterrupt, or any other exception, running
    trials are ended, finished records stay, and the exception goes on.

    Args:
        trials: what to run; an older record of the same id is removed before its trial starts.
        root: folder of the data sets that are not installed with a package, or None.
        out: the suite's folder.
        jobs: how many trials at once.
        reporter: told what starts, moves and ends.
        work: what each process does; picklable, so defined at the top level of a module.
    """
    if jobs < 1:
        raise UserError(f"jobs: {jobs} is not a number of processes; give 1 or more")
    timed = [trial for trial in trials if isinstance(trial, RuntimeTrial)]
    others = [trial for trial in trials if not isinstance(trial, RuntimeTrial)]
    context = start_server(
        [trial.data.name for trial in trials if isinstance(trial, DensityTrial)],
        kernels=any(trial.uses_kernels for trial in trials),
    )
    for group, at_once in ((others, jobs), (timed, 1)):
        _Pool(context, root, out, reporter, work).run(group, at_once)


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


@dataclass
class _Running:
    trial: Trial
    process: BaseProcess
    messages: Connection
    slot: int
    begin: float


class _Pool:
    """The processes of one group of trials."""

    def __init__(
        self,
        context: ForkServerContext | SpawnContext,
        root: Path | None,
        out: Path,
        reporter: Reporter,
        work: Work,
    ) -> None:
        self.context = context
        self.root = root
        self.out = out
        self.reporter = reporter
        self.work = work
        self.running: list[_Running] = []

    def run(self, trials: Sequence[Trial], jobs: int) -> None:
        waiting = list(reversed(trials))
        try:
            while waiting or self.running:
                while waiting and len(self.running) < jobs:
                    self._start(waiting.pop())
                self._wait()
        finally:
            self._end_all()

    def _start(self, trial: Trial) -> None:
        _record_path(self.out, trial).unlink(missing_ok=True)
        log = _log_path(self.out, trial)
        log.parent.mkdir(parents=True, exist_ok=True)
        slot = min(set(range(len(self.running) + 1)) - {other.slot for other in self.running})
        receiver, sender = self.context.Pipe(duplex=False)
        process = self.context.Process(
            target=_child, args=(self.work, trial, self.root, self.out, log, slot, sender), name=trial.id
        )
        process.start()
        self.running.append(_Running(trial, process, receiver, slot, time.perf_counter()))
        sender.close()
        self.reporter.started(trial)

    def _wait(self) -> None:
        """Sleep until a trial says something or ends, and take note of it."""
        by_handle: dict[Any, _Running] = {}
        for one in self.running:
            by_handle[one.process.sentinel] = one
            if not one.messages.closed:
                by_handle[one.messages] = one
        for handle in wait(list(by_handle)):
            one = by_handle[handle]
            if handle is one.messages:
                self._receive(one)
            else:
                self._finish(one)

    def _receive(self, one: _Running) -> None:
        try:
            while one.messages.poll():
                fraction, text = one.messages.recv()
                self.reporter.update(one.trial, fraction, text)
        except (EOFError, OSError):  # the process ends; its sentinel tells how
            one.messages.close()

    def _finish(self, one: _Running) -> None:
        one.process.join()
        _end_group(one.process)  # what the trial itself started
        self.running.remove(one)
        one.messages.close()
        record = _outcome(one, self.out)
        self.reporter.finished(one.trial, record)

    def _end_all(self) -> None:
        for one in self.running:
            _end_group(one.process)
            one.process.kill()
        for one in self.running:
            one.process.join()
            one.messages.close()
        self.running.clear()


def _record_path(out: Path, trial: Trial) -> Path:
    return out / "records" / f"{trial.id}.json"


def _log_path(out: Path, trial: Trial) -> Path:
    return out / "logs" / f"{trial.id}.log"


def _outcome(one: _Running, out: Path) -> Record:
    """The record that the process left, or a new one that says how it ended without."""
    path = _record_path(out, one.trial)
    fault = "left no record"
    if path.exists():
        try:
            return read_record(path)
        except UserError as error:
            fault = str(error)
    code = one.process.exitcode
    if code is not None and code < 0:
        record = blank_record(one.trial, "killed", _signal_reason(-code))
    else:
        record = blank_record(one.trial, "error", f"the process ended with exit code {code} and {fault}")
    record.seconds = time.perf_counter() - one.begin
    with contextlib.suppress(OSError):
        log = _log_path(out, one.trial).read_text(encoding="utf-8", errors="replace")
        record.notes["log"] = "\n".join(log.splitlines()[-LOG_TAIL:])
    write_record(out / "records", record)
    return record


def _signal_reason(number: int) -> str:
    try:
        known = signal.Signals(number).name
    except ValueError:
        known = f"signal {number}"
    reason = f"the process was ended by {known} ({signal.strsignal(number) or 'unknown'})"
    if known == "SIGKILL":
        reason += "; if nobody sent it, the system was out of memory: run with fewer --jobs or a smaller batch"
    return reason


def _end_group(process: BaseProcess) -> None:
    if process.pid is not None and hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _child(work: Work, trial: Trial, root: Path | None, out: Path, log: Path, slot: int, messages: Connection) -> None:
    """The main function of a trial's process."""
    _detach()
    with log.open("wb", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    faulthandler.enable(all_threads=False)
    if trial.device == "cuda":
        import torch

        if torch.cuda.is_available():
            torch.cuda.set_device(slot % torch.cuda.device_count())
    last = 0.0

    def progress(fraction: float, text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= MESSAGE_PERIOD:
            last = now
            messages.send((float(fraction), str(text)))

    work(trial, root, out, progress)


def _detach() -> None:
    """Leave the terminal's process group, and make sure of an end with the supervisor, however it ends.

    The parent of this process is the fork server, which lives as long as any process that it started; so a
    thread watches for the supervisor's end, and the kernel for the fork server's.
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
