"""Run trials, each in a process of its own, and see to it that each leaves exactly one record.

The supervisor starts a process, listens to its progress, ends it at its limits of time and memory, and when it is
over reads its record, or writes one that says how it ended without. It computes nothing itself and needs no torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.isolation.messages import BadMessage
from harness.core.isolation.process import Child, Context, start
from harness.core.isolation.reaper import Reaper
from harness.core.kinds import kind_of
from harness.core.machine import memory_watched
from harness.core.records import Record, Status, write_record
from harness.core.run_options import Conditions
from harness.core.settings import DensityTrial, Trial
from harness.execution.local.memory import LOOK_SECONDS, MemoryWatch, kernel_kills
from harness.execution.local.process import NO_SPACE_LEFT, Assignment, Work, execute, run_assignment, start_server, told
from harness.execution.local.slots import Lease, Slots
from harness.execution.outcome import Ending, left_record, log_path, missing_record, record_path, stamp
from harness.execution.progress import Reporter

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
    timed = [trial for trial in trials if kind_of(trial.kind).alone]
    others = [trial for trial in trials if not kind_of(trial.kind).alone]
    context = start_server(
        [trial.data.name for trial in trials if isinstance(trial, DensityTrial)],
        kernels=any(trial.uses_kernels for trial in trials),
    )
    alone = Slots(1, slots.cores, slots.gpus)
    with Reaper() as reaper:
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
    child: Child
    lease: Lease
    provenance: Mapping[str, Any]
    begin: float
    stamp: tuple[int, int, int] | None  # of the record that was there before
    kills: int | None  # of the kernel, for want of memory, up to now
    limit: Status | None = None
    held: int = 0
    last_words: str = ""
    bad_message: str = ""

    @property
    def ending(self) -> bool:
        """Whether the supervisor has ended it."""
        return self.limit is not None or self.bad_message != ""


class _Pool:
    """The running trials."""

    def __init__(
        self,
        context: Context,
        conditions: Conditions,
        reporter: Reporter,
        provenance: Provenance,
        stop_at: Callable[[Record], bool] | None,
        work: Work,
        reaper: Reaper,
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
        given = Assignment(trial, self.conditions, known, lease.gpu)
        before, kills = stamp(record_path(out, trial)), kernel_kills()
        child = start(self.context, run_assignment, (self.work, given), log=log, name=trial.id)
        self.reaper.watch(child)
        self.running.append(_Running(trial, child, lease, known, time.perf_counter(), before, kills))
        self.reporter.started(trial)

    def _wait(self) -> list[tuple[Record, Lease]]:
        """Sleep until a trial says something, ends, or is due to be looked at; the records of those that ended."""
        by_handle: dict[Any, _Running] = {}
        for one in self.running:
            by_handle[one.child.process.sentinel] = one
            if not one.child.messages.closed:
                by_handle[one.child.messages.connection] = one
        ended = []
        for handle in wait(list(by_handle), self._patience()):
            one = by_handle[handle]
            if handle is one.child.messages.connection:
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
        left = (self.conditions.timeout - (now - one.begin) for one in self.running if not one.ending)
        return min(LONGEST_WAIT, max(0.0, min(left, default=LONGEST_WAIT)))

    def _enforce(self) -> None:
        """End what is beyond its time or its memory; its end is noticed like any other."""
        now = time.perf_counter()
        running = [one for one in self.running if not one.ending]
        over = {} if self.memory is None else self.memory.over([one.child.pid for one in running])
        for one in running:
            if one.child.pid in over:
                one.limit, one.held = "oom", over[one.child.pid]
            elif self.conditions.timeout is not None and now - one.begin >= self.conditions.timeout:
                one.limit = "timeout"
            if one.limit is not None:
                one.child.end()

    def _receive(self, one: _Running) -> None:
        try:
            for message in one.child.messages.receive():
                fraction, one.last_words = told(message)
                self.reporter.update(one.trial, fraction, one.last_words)
        except BadMessage as error:
            one.bad_message = str(error)
            one.child.messages.close()
            one.child.end()

    def _finish(self, one: _Running) -> Record:
        one.child.process.join()
        one.child.end_group()  # what the trial itself started
        self._receive(one)  # what it said last
        if one.child.messages.partial and one.child.exit_code == 0:  # else the end of the process has cut it
            one.bad_message = one.bad_message or "the beginning of a message and no end"
        self.reaper.forget(one.child)
        self.running.remove(one)
        one.child.messages.close()
        record = self._outcome(one)
        self.reporter.finished(one.trial, record)
        return record

    def _outcome(self, one: _Running) -> Record:
        """The record that the process left, or a new one that says how it ended without."""
        out = self.conditions.out
        record, fault = left_record(one.trial, out, one.stamp)
        if record is not None and not one.bad_message:
            return record
        if one.child.exit_code == NO_SPACE_LEFT:
            raise _unwritable(out, f"what trial {one.trial.id} found {one.last_words}")
        kills = kernel_kills()
        ending = Ending(
            exit_code=one.child.exit_code,
            seconds=time.perf_counter() - one.begin,
            limit=one.limit,
            held=one.held,
            out_of_memory=kills is not None and one.kills is not None and kills > one.kills,
            last_words=one.last_words,
            bad_message=one.bad_message,
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
            one.child.end()
        for one in self.running:
            one.child.process.join()
            self.reaper.forget(one.child)
            one.child.messages.close()
        self.running.clear()


def _unwritable(out: Path, what: str) -> UserError:
    return UserError(
        f"{out}: {what}; make room there and give the same command again: finished trials keep their records, and "
        "the others go on from their checkpoints"
    )
