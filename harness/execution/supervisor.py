"""Run trials, each in a process of its own, and see to it that each leaves exactly one record.

The supervisor starts a process, listens to its progress, ends it at its limits of time and memory, and when it is
over reads its record, or writes one that says how it ended without. It computes nothing itself and needs no torch.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.conditions import Conditions
from harness.errors import UserError
from harness.execution.memory import LOOK_SECONDS, MemoryWatch, kernel_kills
from harness.execution.outcome import Ending, left_record, log_path, missing_record, record_path, stamp
from harness.execution.process import NO_SPACE_LEFT, Assignment, Work, execute, run_assignment, start_server
from harness.execution.slots import Lease, Slots
from harness.machine import memory_watched
from harness.progress import Reporter
from harness.records import Record, Status, write_record
from harness.settings import DensityTrial, RuntimeTrial, Trial

LONGEST_WAIT = 1.0  # seconds between two looks at the clock

Provenance = Callable[[Trial], Mapping[str, Any]]
"""A trial to what its record is to say of where it comes from."""


def unknown_provenance(trial: Trial) -> dict[str, Any]:
    """For trials of which nobody asks."""
    return {}


def run_trials(
    trials: Sequence[Trial],
    conditions: Conditions,
    slots: Slots,
    reporter: Reporter,
    *,
    provenance: Provenance = unknown_provenance,
    stop_at: Callable[[Record], bool] | None = None,
    work: Work = execute,
) -> None:
    """Run every trial and leave one record each in `out/records`, what it printed in `out/logs`.

    They run side by side, in the given order, as `slots` has room. Runtime trials come last and run alone, as
    whatever runs beside them would be measured with them. On KeyboardInterrupt, or any other exception, running
    trials are ended without a record, finished records stay, and the exception goes on.

    Args:
        trials: what to run; a record of an earlier run stays until its trial leaves another.
        conditions: of the run; they are the same for all trials.
        slots: what may run at once.
        reporter: told what starts, moves and ends.
        provenance: asked once for each trial.
        stop_at: whether a record is a reason to end the run here (--fail-fast); None: none is.
        work: what each process does; picklable, so defined at the top level of a module.

    Raises:
        UserError: a limit that cannot be watched here, or a record that could not be written.
    """
    if conditions.memory is not None and not memory_watched():
        raise UserError(
            "--memory: this system has no /proc to see a trial's memory in, so the limit would not hold; leave it "
            "out and run with fewer --jobs"
        )
    timed = [trial for trial in trials if isinstance(trial, RuntimeTrial)]
    others = [trial for trial in trials if not isinstance(trial, RuntimeTrial)]
    context = start_server(
        [trial.data.name for trial in trials if isinstance(trial, DensityTrial)],
        kernels=any(trial.uses_kernels for trial in trials),
    )
    alone = Slots(1, slots.cores, slots.gpus)
    with _Reaper() as reaper:
        pool = _Pool(context, conditions, reporter, provenance, stop_at, work, reaper)
        for group, room in ((others, slots), (timed, alone)):
            if not pool.run(group, room):
                return


def run_one(
    trial: Trial,
    conditions: Conditions,
    reporter: Reporter,
    *,
    gpus: Sequence[str] = (),
    provenance: Provenance = unknown_provenance,
    work: Work = execute,
) -> None:
    """Run a single trial under this process's supervision: its record is there when this returns.

    For a process that somebody else has started for this one trial, such as a job of a cluster. The trial runs
    in a process of its own all the same, under the same limits.
    """
    run_trials([trial], conditions, Slots(1, gpus=gpus), reporter, provenance=provenance, work=work)


@dataclass
class _Running:
    trial: Trial
    process: BaseProcess
    messages: Connection
    lease: Lease
    provenance: Mapping[str, Any]
    begin: float
    stamp: tuple[int, int, int] | None  # of the record that was there before
    kills: int | None  # of the kernel, for want of memory, up to now
    limit: Status | None = None
    held: int = 0
    last_words: str = ""


class _Pool:
    """The running trials."""

    def __init__(
        self,
        context: ForkServerContext | SpawnContext,
        conditions: Conditions,
        reporter: Reporter,
        provenance: Provenance,
        stop_at: Callable[[Record], bool] | None,
        work: Work,
        reaper: _Reaper,
    ) -> None:
        self.context = context
        self.conditions = conditions
        self.reporter = reporter
        self.provenance = provenance
        self.stop_at = stop_at
        self.work = work
        self.reaper = reaper
        self.memory = None if conditions.memory is None else MemoryWatch(conditions.memory)
        self.running: list[_Running] = []

    def run(self, trials: Sequence[Trial], slots: Slots) -> bool:
        """Run these trials; whether to go on afterwards."""
        waiting = list(reversed(trials))
        try:
            while waiting or self.running:
                while waiting and (lease := slots.lease(waiting[-1])) is not None:
                    self._start(waiting.pop(), lease)
                for record, lease in self._wait():
                    slots.give_back(lease)
                    if self.stop_at is not None and self.stop_at(record):
                        return False
                self._enforce()
        finally:
            self._end_all()
        return True

    def _start(self, trial: Trial, lease: Lease) -> None:
        out = self.conditions.out
        log = log_path(out, trial)
        log.parent.mkdir(parents=True, exist_ok=True)
        known = self.provenance(trial)
        given = Assignment(trial, self.conditions, known, lease.gpu, log)
        receiver, sender = self.context.Pipe(duplex=False)
        process = self.context.Process(target=run_assignment, args=(self.work, given, sender), name=trial.id)
        before, kills = stamp(record_path(out, trial)), kernel_kills()
        process.start()
        self.reaper.watch(process)
        sender.close()
        self.running.append(_Running(trial, process, receiver, lease, known, time.perf_counter(), before, kills))
        self.reporter.started(trial)

    def _wait(self) -> list[tuple[Record, Lease]]:
        """Sleep until a trial says something, ends, or is due to be looked at; the records of those that ended."""
        by_handle: dict[Any, _Running] = {}
        for one in self.running:
            by_handle[one.process.sentinel] = one
            if not one.messages.closed:
                by_handle[one.messages] = one
        ended = []
        for handle in wait(list(by_handle), self._patience()):
            one = by_handle[handle]
            if handle is one.messages:
                self._receive(one)
            else:
                ended.append((self._finish(one), one.lease))
        return ended

    def _patience(self) -> float:
        """Seconds until something is due."""
        if self.memory is not None:
            return LOOK_SECONDS
        if self.conditions.timeout is None:
            return LONGEST_WAIT
        now = time.perf_counter()
        left = (self.conditions.timeout - (now - one.begin) for one in self.running if one.limit is None)
        return min(LONGEST_WAIT, max(0.0, min(left, default=LONGEST_WAIT)))

    def _enforce(self) -> None:
        """End what is beyond its time or its memory; its end is noticed like any other."""
        now = time.perf_counter()
        running = [one for one in self.running if one.limit is None]
        over = {} if self.memory is None else self.memory.over([_pid(one.process) for one in running])
        for one in running:
            if _pid(one.process) in over:
                one.limit, one.held = "oom", over[_pid(one.process)]
            elif self.conditions.timeout is not None and now - one.begin >= self.conditions.timeout:
                one.limit = "timeout"
            if one.limit is not None:
                _end(one.process)

    def _receive(self, one: _Running) -> None:
        try:
            while one.messages.poll():
                fraction, one.last_words = one.messages.recv()
                self.reporter.update(one.trial, fraction, one.last_words)
        except (EOFError, OSError):  # the process ends; its sentinel tells how
            one.messages.close()

    def _finish(self, one: _Running) -> Record:
        one.process.join()
        if not one.messages.closed:
            self._receive(one)  # what it said last
        _end_group(one.process)  # what the trial itself started
        self.reaper.forget(one.process)
        self.running.remove(one)
        one.messages.close()
        record = self._outcome(one)
        self.reporter.finished(one.trial, record)
        return record

    def _outcome(self, one: _Running) -> Record:
        """The record that the process left, or a new one that says how it ended without."""
        out = self.conditions.out
        record, fault = left_record(one.trial, out, one.stamp)
        if record is not None:
            return record
        if one.process.exitcode == NO_SPACE_LEFT:
            raise _unwritable(out, f"what trial {one.trial.id} found {one.last_words}")
        kills = kernel_kills()
        ending = Ending(
            exit_code=one.process.exitcode,
            seconds=time.perf_counter() - one.begin,
            limit=one.limit,
            held=one.held,
            out_of_memory=kills is not None and one.kills is not None and kills > one.kills,
            last_words=one.last_words,
        )
        record = missing_record(one.trial, self.conditions, ending, fault, one.provenance)
        try:
            write_record(out / "records", record)
        except OSError as error:
            why = error.strerror or error
            raise _unwritable(out, f"the record of trial {one.trial.id} cannot be written: {why}") from error
        return record

    def _end_all(self) -> None:
        for one in self.running:
            _end(one.process)
        for one in self.running:
            one.process.join()
            self.reaper.forget(one.process)
            one.messages.close()
        self.running.clear()


def _unwritable(out: Path, what: str) -> UserError:
    return UserError(
        f"{out}: {what}; make room there and give the same command again: finished trials keep their records, and "
        "the others go on from their checkpoints"
    )


def _pid(process: BaseProcess) -> int:
    """A process that has been started has one."""
    return process.pid or 0


def _end(process: BaseProcess) -> None:
    """End a process and its group; the group is not there before the process has made it."""
    _end_group(process)
    process.kill()


def _end_group(process: BaseProcess) -> None:
    if process.pid is not None and hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


class _Reaper:
    """The process that ends the trials when this one is killed (see `harness.execution.reaper`)."""

    def __enter__(self) -> Self:
        self._process: subprocess.Popen[bytes] | None = None
        if hasattr(os, "killpg"):
            script = Path(__file__).with_name("reaper.py")
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            with contextlib.suppress(OSError):
                if self._process.stdin is not None:
                    self._process.stdin.close()
            self._process.wait()

    def watch(self, process: BaseProcess) -> None:
        """A process group that ends with this process."""
        self._say(f"+{process.pid}\n")

    def forget(self, process: BaseProcess) -> None:
        """It has ended."""
        self._say(f"-{process.pid}\n")

    def _say(self, line: str) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError):  # without a reaper, trials watch for this process's end themselves
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
