"""Run trials, each in a separate process, and ensure that each leaves exactly one record.

The supervisor starts a process, receives its progress, ends it at its limits of time and memory, and after its end
reads its record, or writes one with the reason why it left none. It computes nothing itself and needs no torch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.isolation.descendants import continue_server
from harness.core.isolation.messages import BadMessage
from harness.core.isolation.process import Child, Context, start
from harness.core.records import Record, write_record
from harness.core.run_options import RunOptions, shown_bytes, shown_seconds
from harness.core.trial import Trial
from harness.execution.folder import writing
from harness.execution.local.memory import LOOK_SECONDS, MemoryWatch
from harness.execution.local.process import NO_SPACE_LEFT, Work, read_progress, run_in_process, start_trial_server
from harness.execution.local.slots import Lease, Slots
from harness.execution.outcome import (
    End,
    Provenance,
    digest,
    end_of,
    left_record,
    log_path,
    missing_record,
    record_path,
)
from harness.execution.progress import Reporter

LONGEST_WAIT = 0.5  # seconds between two checks of the clock


def run_trials(
    trials: Sequence[Trial],
    run_options: RunOptions,
    slots: Slots,
    reporter: Reporter,
    *,
    provenance: Provenance = lambda trial: {},
    work: Work | None = None,
) -> None:
    """Run every trial; leave one record each in `out/records`, and its output in `out/logs`.

    They run side by side, in this order, as `slots` permits. Runtime trials come last and run alone, as other
    processes would affect their times. On KeyboardInterrupt, or any other exception, running trials are ended without
    a record, finished records stay, and the exception propagates.

    Args:
        trials: a record of an earlier run stays until its trial leaves another.
        work: function that each process runs, in place of `harness.execution.trial.execute`; picklable.

    Raises:
        UserError: a limit that cannot be watched here, or a record that could not be written.
    """
    if run_options.memory is not None and not Path("/proc/self/status").is_file():
        raise UserError(
            "--memory: this system has no /proc with a trial's memory, so the limit cannot be enforced; leave it "
            "out and run with fewer --jobs"
        )
    context = start_trial_server(
        {trial.kind for trial in trials},
        [data.name for trial in trials for data in trial.data_sets],
        kernels=any(trial.computes and trial.device == "cpu" for trial in trials),
    )
    memory = None if run_options.memory is None else MemoryWatch(run_options.memory)
    pool = _Pool(context, run_options, reporter, provenance, work, memory)
    pool.run([trial for trial in trials if not trial.alone], slots)
    pool.run([trial for trial in trials if trial.alone], Slots(1, slots.cores, slots.gpus))


@dataclass
class _Task:
    """A running trial."""

    trial: Trial
    child: Child
    lease: Lease
    provenance: Mapping[str, Any]
    begin: float
    before: str | None  # digest of the record from before the start
    forced: End | None = None  # why the supervisor has ended it
    last_words: str = ""  # its last progress message


@dataclass
class _Pool:
    """The running trials, with the arguments of `run_trials` that they share."""

    context: Context
    run_options: RunOptions
    reporter: Reporter
    provenance: Provenance
    work: Work | None
    memory: MemoryWatch | None
    running: list[_Task] = field(default_factory=list)

    def run(self, trials: Sequence[Trial], slots: Slots) -> None:
        """Run these trials."""
        waiting = list(reversed(trials))
        try:
            while waiting or self.running:
                while waiting and (lease := slots.lease(waiting[-1])) is not None:
                    self._start(waiting.pop(), lease)
                self._wait(slots)
                self._enforce()
        finally:
            for task in self.running:
                task.child.end()
            for task in self.running:
                task.child.clear()
                task.child.messages.connection.close()
            self.running.clear()

    def _start(self, trial: Trial, lease: Lease) -> None:
        out = self.run_options.out
        log = log_path(out, trial)
        log.parent.mkdir(parents=True, exist_ok=True)
        provenance = self.provenance(trial)
        # A layer may change the working directory, so the trial gets no relative path.
        args = self.work, trial, replace(self.run_options, out=out.absolute()), provenance, lease.gpu
        before = digest(record_path(out, trial))
        child = start(self.context, run_in_process, args, log=log, name=trial.id)
        self.running.append(_Task(trial, child, lease, provenance, time.perf_counter(), before))
        self.reporter.started(trial, f"process {child.pid}")

    def _wait(self, slots: Slots) -> None:
        """Sleep until a trial sends a message, ends, or is due for a check."""
        by_handle: dict[Any, _Task] = {}
        for task in self.running:
            by_handle[task.child.process.sentinel] = task
            if not task.child.messages.connection.closed:
                by_handle[task.child.messages.connection] = task
        for handle in wait(list(by_handle), LONGEST_WAIT if self.memory is None else LOOK_SECONDS):
            task = by_handle[handle]
            if handle is task.child.messages.connection:
                self._receive(task)
            else:
                slots.give_back(task.lease)
                self._finish(task)

    def _enforce(self) -> None:
        """Cut logs; end processes beyond their limits of time or memory, which is then noticed like any other end."""
        continue_server()
        for task in self.running:
            task.child.limit_log()
        now = time.perf_counter()
        running = [task for task in self.running if task.forced is None]
        over = {} if self.memory is None else self.memory.over([task.child.pid for task in running])
        for task in running:
            if self.memory is not None and task.child.pid in over:
                held, allowed = shown_bytes(over[task.child.pid]), shown_bytes(self.memory.limit)
                task.forced = End("oom", f"its processes held {held} of memory, and may hold {allowed} (memory)")
            elif self.run_options.timeout is not None and now - task.begin >= self.run_options.timeout:
                limit = shown_seconds(self.run_options.timeout)
                task.forced = End("timeout", f"it ran for longer than {limit}, its timeout")
            if task.forced is not None:
                task.child.end()

    def _receive(self, task: _Task) -> None:
        try:
            for message in task.child.messages.receive():
                fraction, task.last_words = read_progress(message)
                self.reporter.update(task.trial, fraction, task.last_words)
        except BadMessage as error:
            task.forced = _garbled(str(error))
            task.child.messages.connection.close()
            task.child.end()

    def _finish(self, task: _Task) -> None:
        task.child.clear()
        self._receive(task)  # its last messages
        if task.forced is None and task.child.messages.partial and task.child.process.exitcode == 0:
            task.forced = _garbled("the beginning of a message and no end")  # else its end has truncated the message
        self.running.remove(task)
        task.child.messages.connection.close()
        self.reporter.finished(task.trial, self._outcome(task))

    def _outcome(self, task: _Task) -> Record:
        """Return the record that the process left, or write one with the reason why it left none."""
        out, code = self.run_options.out, task.child.process.exitcode
        record, fault = left_record(task.trial, out, task.before)
        if record is not None and (task.forced is None or task.forced.status != "error"):
            return record
        if code == NO_SPACE_LEFT:
            raise UserError(
                f"{out}: the result of trial {task.trial.id} {task.last_words}; make room there and give the same "
                "command again: finished trials keep their records, and the others resume from their checkpoints"
            )
        end = task.forced or end_of(code, fault)
        seconds = time.perf_counter() - task.begin
        record = missing_record(task.trial, out, end, seconds, task.last_words, task.provenance)
        with writing(out):
            write_record(out / "records", record)
        return record


def _garbled(fault: str) -> End:
    return End("error", f"it was ended because it wrote {fault}, to the pipe of its messages")
