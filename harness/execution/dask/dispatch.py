"""Give trials to the workers of a Dask cluster, and write what comes back into the folder of the run.

Dask's own placement takes one thread of a worker per task. Trials have several threads, and those that measure times
need a machine for themselves, so each trial is submitted to a worker that is chosen here. Dask would also submit it
again after the death of its worker, as often as the scheduler's configuration says; so that is decided here too.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import cloudpickle
from distributed import CancelledError, Client, KilledWorker

from harness.core.errors import UserError
from harness.core.provenance.environment import package_version
from harness.core.records import Record, blank_record, write_record
from harness.core.run_options import RunOptions
from harness.core.trial import Trial
from harness.execution.dask import worker
from harness.execution.dask.job import Job, files_of, store
from harness.execution.dask.worker import run_trial
from harness.execution.executor import Following
from harness.execution.folder import writing
from harness.execution.local.slots import Lease, Slots
from harness.execution.progress import Reporter

PERIOD = 1.0  # seconds between two looks at the workers
TRIES = 2  # of a trial whose worker ends

cloudpickle.register_pickle_by_value(worker)


class SchedulerGone(UserError):
    """The scheduler of a run has ended, or has dropped its trials: the run is interrupted."""

    exit_code = 130


@dataclass(frozen=True)
class Machine:
    """A worker, as the scheduler describes it."""

    address: str
    host: str
    threads: int


def machines(client: Client) -> dict[str, Machine]:
    """Return address -> worker, for all that run; raise SchedulerGone if the scheduler does not answer."""
    try:
        workers = client.scheduler_info(n_workers=-1)["workers"]
    except (OSError, TimeoutError, CancelledError, RuntimeError) as error:  # RuntimeError: the client is closed
        raise _gone(client) from error
    return {
        address: Machine(address, facts["host"], facts["nthreads"])
        for address, facts in workers.items()
        if facts["status"] == "running"
    }


def _gone(client: Client) -> SchedulerGone:
    return SchedulerGone(
        f"the Dask scheduler {client.scheduler.address if client.scheduler else ''} has ended, or has dropped this "
        "run; finished trials keep their records, and the same command runs the others"
    )


@dataclass(frozen=True)
class _Task:
    """A trial on a worker."""

    trial: Trial
    machine: Machine
    lease: Lease
    future: Any


class Dispatch:
    """The trials of one run, on the workers of one scheduler.

    Args:
        client: connected to the scheduler.
        run_options: of the run.
        following: for records that are written here, and when to stop.
        reporter: of all trials.
        jobs: trials at once; None: as many as have room.
        data: folder of the data on workers, over their $INVERTBENCH_DATA.
        path: folder to add to the PYTHONPATH of workers.
    """

    def __init__(
        self,
        client: Client,
        run_options: RunOptions,
        following: Following,
        reporter: Reporter,
        jobs: int | None,
        data: Path | None,
        path: str | None,
    ) -> None:
        self.client, self.run_options, self.following, self.reporter = client, run_options, following, reporter
        self.jobs, self.data, self.path = jobs, data, path
        self.topic = f"invertbench-{secrets.token_hex(8)}"
        self._events: SimpleQueue[Any] = SimpleQueue()  # functions to call; other threads fill it
        self._machines: dict[str, Machine] = {}
        self._slots: dict[str, Slots] = {}
        self._waiting: deque[Trial] = deque()
        self._running: dict[str, _Task] = {}  # by key
        self._started: dict[str, Trial] = {}
        self._deaths: Counter[str] = Counter()
        self._stopped = self._told = False
        self._looked = 0.0

    def run(self, trials: Sequence[Trial]) -> None:
        """Run the trials, those that run alone last; on an exception, and if one ends the run, cancel the others.

        Raises:
            SchedulerGone: the scheduler has ended.
            UserError: a trial cannot run on its worker, or the folder cannot be written.
        """
        self.client.subscribe_topic(self.topic, lambda event: self._events.put(partial(self._progress, event[1])))
        self.client.subscribe_topic("all", lambda event: self._events.put(partial(self._notice, event[1])))
        try:
            for alone in (False, True):
                self._waiting = deque(trial for trial in trials if trial.alone == alone)
                while (self._waiting or self._running) and not self._stopped:
                    self._look()
                    self._submit()
                    try:
                        self._events.get(timeout=PERIOD)()
                    except Empty:
                        continue
        finally:
            for task in self._running.values():
                task.future.cancel()
            self._running.clear()
            for topic in (self.topic, "all"):
                self.client.unsubscribe_topic(topic)

    def _look(self) -> None:
        if time.monotonic() - self._looked < PERIOD:
            return
        self._looked = time.monotonic()
        if self.client.status != "running":
            raise _gone(self.client)
        self._machines = machines(self.client)
        if not self._machines and not self._told:
            self.reporter.line("the scheduler has no worker: the run waits for one")
        self._told = not self._machines

    def _submit(self) -> None:
        """Submit trials, in order, while a worker has room for the first one."""
        while self._waiting and (self.jobs is None or len(self._running) < self.jobs):
            busy = Counter(task.machine.host for task in self._running.values())
            load = Counter(task.machine.address for task in self._running.values())
            for machine in sorted(self._machines.values(), key=lambda machine: load[machine.address]):
                if self._waiting[0].alone and busy[machine.host]:
                    continue
                slots = self._slots.setdefault(machine.address, Slots(cores=machine.threads))
                lease = slots.lease(self._waiting[0])
                if lease is not None:
                    self._start(self._waiting.popleft(), machine, lease)
                    break
            else:
                return

    def _start(self, trial: Trial, machine: Machine, lease: Lease) -> None:
        job = Job(
            version=package_version("invertbench"),
            trial=trial,
            sources=dict(self.following.provenance(trial)["sources"]),
            run_options=self.run_options,
            data=self.data,
        )
        files = files_of(job, self.run_options.out)
        key = f"{trial.id}-{secrets.token_hex(8)}"
        future = self.client.submit(
            lambda *arguments: run_trial(*arguments),  # not importable by name, so it is sent as code
            files,
            self.topic,
            self.path,
            key=key,
            workers=[machine.address],
            allow_other_workers=False,
            retries=0,
            pure=False,
        )
        self._running[key] = _Task(trial, machine, lease, future)
        if trial.id not in self._started:
            self._started[trial.id] = trial
            self.reporter.started(trial)
        future.add_done_callback(partial(self._receive, key))

    def _receive(self, key: str, future: Any) -> None:
        """Fetch the outcome of a task, in a thread of Dask."""
        try:
            outcome = future.result()
        except BaseException as error:
            outcome = error
        self._events.put(partial(self._finish, key, outcome))

    def _progress(self, message: Mapping[str, Any]) -> None:
        trial = self._started.get(message["trial"])
        if trial is not None and any(task.trial is trial for task in self._running.values()):
            self.reporter.update(trial, message["fraction"], message["text"])

    def _notice(self, message: Any) -> None:
        """Take back the trials of a worker that has ended."""
        if isinstance(message, dict) and message.get("action") == "remove-worker":
            self._machines.pop(message["worker"], None)
            self._slots.pop(message["worker"], None)
            for key, task in list(self._running.items()):
                if task.machine.address == message["worker"]:
                    del self._running[key]
                    task.future.cancel()
                    self._lose(task, "its worker ended")

    def _finish(self, key: str, outcome: worker.Outcome | BaseException) -> None:
        task = self._running.pop(key, None)
        if task is None:  # it was given up
            return
        if task.machine.address in self._slots:
            self._slots[task.machine.address].give_back(task.lease)
        if isinstance(outcome, CancelledError):
            raise _gone(self.client) from outcome
        if isinstance(outcome, KilledWorker):
            self._lose(task, "its worker ended")
        elif isinstance(outcome, BaseException):
            fault = f"{type(outcome).__name__}: {outcome}"
            raise UserError(f"worker {task.machine.address}: {fault}; its own output may say more") from outcome
        elif outcome["lost"]:
            self._lose(task, "the process that supervises it was killed")
        elif outcome["fault"]:
            refusal = UserError(f"worker {task.machine.address}: {outcome['fault']}")
            refusal.exit_code = outcome["code"]
            raise refusal
        else:
            self._end(task.trial, store(task.trial, outcome["files"], self.run_options.out))

    def _lose(self, task: _Task, reason: str) -> None:
        """Let the trial run once more, or write its record."""
        trial = task.trial
        self._deaths[trial.id] += 1
        if self._deaths[trial.id] < TRIES:
            self.reporter.line(f"{trial.slug}: {reason} ({task.machine.address}); it runs again")
            self._waiting.appendleft(trial)
            return
        record = blank_record(
            trial,
            "killed",
            f"{reason}, in each of {TRIES} tries; if no user ended the workers, their machines were out of memory or "
            "their time was over: run with fewer threads per worker, a --memory, or a longer time",
        )
        record.environment = dict(self.following.provenance(trial))
        with writing(self.run_options.out):
            write_record(self.run_options.out / "records", record)
        self._end(trial, record)

    def _end(self, trial: Trial, record: Record) -> None:
        self.reporter.finished(trial, record)
        if self.following.stop_at is not None and self.following.stop_at(record):
            self._stopped = True
