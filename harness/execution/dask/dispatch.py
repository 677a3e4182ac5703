"""Give trials to the workers of a Dask cluster, and write what comes back into the folder of the run.

Each trial is submitted to one worker that is chosen here: a trial has several threads, and a task that fails does not
say where. So a worker that cannot run trials is known and left out.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
from distributed import CancelledError, Client

from harness.core.errors import UserError
from harness.core.records import Record, blank_record, write_record
from harness.core.run_options import RunOptions
from harness.core.texts import error_text, visible
from harness.core.trial import Trial
from harness.execution.dask import worker
from harness.execution.dask.job import Job, files_of, store, unpacked
from harness.execution.dask.worker import run_trial
from harness.execution.executor import Following
from harness.execution.folder import writing
from harness.execution.progress import Reporter

PERIOD = 0.2  # seconds between two looks at the tasks
WORKERS_PERIOD = 1.0  # seconds between two questions to the scheduler
FETCH_SECONDS = 300.0  # in which the files of a trial arrive
TRIES = 2  # of a trial whose worker ends

cloudpickle.register_pickle_by_value(worker)


class SchedulerGone(UserError):
    """The scheduler of a run has ended, or has dropped its trials: the run is interrupted."""

    exit_code = 130

    def __init__(self) -> None:
        text = "finished trials keep their records, and the same command runs the others"
        super().__init__(f"the Dask scheduler has ended, or has dropped this run; {text}")


def workers(client: Client) -> dict[str, int]:
    """Return address -> threads, for all that run; raise SchedulerGone if the scheduler does not answer."""
    try:
        described = client.scheduler_info(n_workers=-1)["workers"].items()
        return {str(name): int(facts["nthreads"]) for name, facts in described if facts["status"] == "running"}
    except Exception as error:  # distributed raises almost any
        raise SchedulerGone from error


@dataclass(frozen=True, eq=False)
class _SentTrial:
    """A trial on a worker."""

    trial: Trial
    address: str
    future: Any


@dataclass
class Dispatch:
    """The trials of one run, on the workers of one scheduler."""

    client: Client
    run_options: RunOptions
    following: Following
    reporter: Reporter
    jobs: int | None  # trials at once; None: as many as have room
    _workers: dict[str, int] = field(default_factory=dict)  # address -> threads
    _left_out: dict[str, tuple[str, int]] = field(default_factory=dict)  # address -> fault and exit code
    _waiting: deque[Trial] = field(default_factory=deque)
    _running: list[_SentTrial] = field(default_factory=list)
    _deaths: Counter[str] = field(default_factory=Counter)
    _told: bool = False
    _looked: float = 0.0

    def run(self, trials: Sequence[Trial]) -> None:
        """Run the trials, those that run alone last, one at a time; if one ends the run, cancel the others.

        Raises:
            SchedulerGone: the scheduler has ended.
            UserError: no worker can run the trials, or the folder cannot be written.
        """
        try:
            for alone in (False, True):
                self._waiting = deque(trial for trial in trials if trial.alone == alone)
                while self._waiting or self._running:
                    if time.monotonic() - self._looked >= WORKERS_PERIOD:
                        self._look()
                    self._submit(1 if alone else self.jobs)
                    time.sleep(PERIOD)
                    for task in list(self._running):
                        if task.future.done() and task in self._running:  # the end of another may have removed it
                            self._finish(task)
        finally:
            for task in self._running:
                task.future.cancel()

    def _look(self) -> None:
        """Ask for the workers, and take back the trials of those that have ended."""
        if self.client.status != "running":
            raise SchedulerGone
        self._workers, self._looked = workers(self.client), time.monotonic()
        for task in list(self._running):
            if task.address not in self._workers:
                task.future.cancel()
                self._lose(task)
        if not self._workers and not self._told:
            self.reporter.line("the scheduler has no worker: the run waits for one")
        self._told = not self._workers
        if self._workers and self._workers.keys() <= self._left_out.keys() and not self._running:
            faults = [f"worker {address}: {fault}" for address, (fault, _) in self._left_out.items()]
            refusal = UserError("\n".join(["no worker can run the trials", *faults]))
            refusal.exit_code = min(code for _, code in self._left_out.values())
            raise refusal

    def _submit(self, jobs: int | None) -> None:
        """Submit trials, in order, while a worker has room for the first one."""
        while self._waiting and (jobs is None or len(self._running) < jobs):
            load: Counter[str] = Counter()
            for task in self._running:
                load[task.address] += task.trial.threads
            threads = self._waiting[0].threads
            good = sorted(self._workers.keys() - self._left_out.keys())
            free = [name for name in good if not load[name] or load[name] + threads <= self._workers[name]]
            if not free:
                return
            self._start(self._waiting.popleft(), min(free, key=load.__getitem__))

    def _start(self, trial: Trial, address: str) -> None:
        sources = dict(self.following.provenance(trial)["sources"])
        job = Job(trial=trial, sources=sources, run_options=self.run_options)
        future = self.client.submit(
            lambda *arguments: run_trial(*arguments),  # not importable by name, so it is sent as code
            files_of(job, self.run_options.out),
            key=f"{trial.id}-{secrets.token_hex(8)}",
            workers=[address],
            allow_other_workers=False,
            retries=0,
            pure=False,
        )
        self._running.append(_SentTrial(trial, address, future))
        self.reporter.started(trial, f"worker {address}")

    def _finish(self, task: _SentTrial) -> None:
        """Store the result of a task, or let its trial run elsewhere."""
        try:
            content = task.future.result(timeout=FETCH_SECONDS)
        except CancelledError as error:
            raise SchedulerGone from error
        except Exception as error:  # of the worker, so of any kind
            self._look()
            if task in self._running:  # the worker is still there
                self._leave_out(task, error_text(error), 2)
            return
        try:
            head, files = unpacked(content)
            record = None if head.fault else store(task.trial, files, self.run_options.out)
        except ValueError as error:
            self._leave_out(task, f"it has returned {error}", 2)
            return
        if record is None:
            self._leave_out(task, head.fault, head.code)
        else:
            self._end(task, record)

    def _leave_out(self, task: _SentTrial, fault: str, code: int) -> None:
        """Give no more trials to the worker of a task, and its trial to another."""
        self._running.remove(task)
        self._waiting.appendleft(task.trial)
        if task.address not in self._left_out:
            self._left_out[task.address] = " ".join(visible(fault).split()), code
            self.reporter.line(f"worker {task.address} gets no more trials: {self._left_out[task.address][0]}")

    def _lose(self, task: _SentTrial) -> None:
        """Let the trial of a worker that has ended run once more, or write its record."""
        trial = task.trial
        self._deaths[trial.id] += 1
        if self._deaths[trial.id] < TRIES:
            self._running.remove(task)
            self.reporter.line(f"{trial.slug}: its worker ended ({task.address}); it runs again")
            self._waiting.appendleft(trial)
            return
        reason = (
            f"its worker ended, in each of {TRIES} tries; if no user ended the workers, their machines were out of "
            "memory or their time was over: run with fewer threads per worker, a --memory, or a longer time"
        )
        record = blank_record(trial, "killed", reason)
        record.environment = dict(self.following.provenance(trial))
        with writing(self.run_options.out):
            write_record(self.run_options.out / "records", record)
        self._end(task, record)

    def _end(self, task: _SentTrial, record: Record) -> None:
        self._running.remove(task)
        self.reporter.finished(task.trial, record)
