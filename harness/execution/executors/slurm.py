"""Run trials as jobs of a SLURM cluster, which continue without the command that submitted them."""

from __future__ import annotations

import math
import secrets
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from harness.core.errors import UserError
from harness.core.run_options import PROJECT, RunOptions
from harness.core.settings import Count, Settings
from harness.core.trial import Trial
from harness.execution.agenda import trials_text
from harness.execution.executor import Executor, Following
from harness.execution.folder import writing
from harness.execution.outcome import digest, record_path
from harness.execution.progress import FailedFast, Reporter
from harness.execution.slurm.submissions import ACTIVE, FOLDER, Submission, run_program, submitted_trials
from harness.planning.plan import GivenDevice
from harness.planning.suite_model import Duration, Memory

PERIOD = 3.0  # seconds between two looks at the shared disk and the queue
LATE_RECORD = 15.0  # seconds between the end of a job and the arrival of its record, as shared disks are slow

OURS = (
    *("array", "chdir", "cpus-per-task", "error", "exclusive", "gres", "job-name", "mem", "nodes", "ntasks"),
    *("open-mode", "output", "parsable", "requeue", "no-requeue", "time", "wait", "wrap"),
    *("partition", "account", "qos", "constraint"),
)
"""Options of sbatch with a key of their own here, or set by this program."""


def _options(options: dict[str, Any]) -> dict[str, Any]:
    for name, value in options.items():
        if name in OURS:
            raise ValueError(f"--{name} is set by this program; use the keys of cluster itself")
        if value is False or not isinstance(value, (int, str)):
            raise ValueError(f"{name}: {value!r} is no value of sbatch; write text, a whole number, or true")
    return options


class SlurmSection(Settings):
    """The resources of each job, and the number of jobs at once; null: the cluster's default.

    They are no part of a trial, as they do not change its result.

    Attributes:
        partition, account, qos, constraint: options of sbatch.
        time: of a job, rounded up to minutes.
        memory: of a job.
        cpus: of a job; null: as many as its trials have threads.
        gres: of a job; null: "gpu:1" for trials on CUDA, else none.
        throttle: jobs at once; --jobs has precedence.
        trials_per_job: in sequence; runtime trials are all in one job, on one machine.
        options: any other long option of sbatch, such as reservation: maintenance; true for one without a value.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time: Duration = None
    memory: Memory = None
    cpus: Count | None = None
    gres: str | None = None
    throttle: Count | None = None
    trials_per_job: Count = 1
    options: Annotated[dict[str, Any], AfterValidator(_options)] = Field(default_factory=dict)


class Slurm(Executor):
    """Arrays of jobs; --jobs limits those that run at once."""

    Section = SlurmSection
    section: SlurmSection
    here = False

    @property
    def cores(self) -> int:
        """The cores of a job."""
        return self.section.cpus or 1

    def device(self, option: GivenDevice) -> GivenDevice:
        """Return CUDA for "auto" if jobs request GPUs, and the CPU if not."""
        if option != "auto":
            return option
        return "cuda" if "gpu" in (self.section.gres or "") else "cpu"

    def at_once(self, trials: Sequence[Trial]) -> int:
        """Return the limit of jobs at once."""
        return max(1, min(len(trials), self.jobs or self.section.throttle or len(trials)))

    def run(self, trials: Sequence[Trial], run_options: RunOptions, following: Following) -> None:
        """Submit those trials that are not submitted; wait for all. On KeyboardInterrupt their jobs continue."""
        folder, before = run_options.out, self.active(run_options.out)
        if waiting := sum(trial.id in before for trial in trials):
            following.tell(f"{trials_text(waiting)} of them were submitted before: this run waits for their results")
        new = [trial for trial in trials if trial.id not in before]
        # Runtime trials are one job, alone on its node, so that their times come from one machine.
        others, size = [trial for trial in new if not trial.alone], self.section.trials_per_job
        alone = [trial for trial in new if trial.alone]
        arrays = [[others[start : start + size] for start in range(0, len(others), size)], [alone] if alone else []]
        for array in filter(None, arrays):
            following.tell(self.submit(array, run_options))
        following.tell(
            f"Ctrl-C ends no job: the same command waits for them again, `python -m harness status {folder}` shows "
            f"them, and `python -m harness cancel {folder}` ends them"
        )
        try:
            with following.reporter(len(trials)) as reporter:
                self._follow(folder, {trial.id for trial in trials}, reporter)
        except FailedFast:
            self.cancel(folder)
            raise

    def submit(self, jobs: Sequence[Sequence[Trial]], run_options: RunOptions) -> str:
        """Submit an array of jobs, each of some trials, and return a line on it.

        Raises:
            UserError: SLURM is missing here, or sbatch refuses the job.
        """
        trials = [trial for job in jobs for trial in job]
        out, stamp = run_options.out.absolute(), f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}"
        place = out / FOLDER / stamp
        submission = Submission(
            name=f"invertbench-{trials[0].suite}-{stamp}",
            jobs=tuple(map(tuple, jobs)),
            before={trial.id: old for trial in trials if (old := digest(record_path(out, trial)))},
            run_options=replace(run_options, out=out),
        )
        options: dict[str, str | int | None] = {
            "job-name": submission.name,
            "array": f"0-{len(jobs) - 1}%{self.jobs or self.section.throttle or len(jobs)}",
            "output": f"{str(place).replace('%', '%%')}/%a.log",
            **resources(trials, self.section),
        }
        given = [(name, value) for name, value in (options | self.section.options).items() if value is not None]
        arguments = [f"--{name}" if value is True else f"--{name}={value}" for name, value in given]
        with writing(out):
            submission.save(place)  # before sbatch, so that the jobs of a run killed in between can be found by name
        try:
            answer = run_program("sbatch", "--parsable", *arguments, text=_script(place, run_options))
        except UserError as error:
            shutil.rmtree(place, ignore_errors=True)  # no jobs exist
            raise UserError(f"{error}; see cluster: in the suite, and --cluster") from error
        number = answer.strip().partition(";")[0]
        return f"submitted job {number}: {len(jobs)} of {submission.name}, {len(trials)} trials"

    def _follow(self, folder: Path, left: set[str], reporter: Reporter) -> None:
        """Wait until the cluster has nothing more to do for these trials, and report their ends."""
        ended: dict[str, float] = {}  # when the end of a job without a record was seen
        while left:
            for key, job in submitted_trials(folder, left).items():
                if job.record is not None:
                    left.remove(key)
                    reporter.finished(job.trial, job.record)
                elif job.state in ACTIVE:
                    ended.pop(key, None)
                elif time.monotonic() - ended.setdefault(key, time.monotonic()) > LATE_RECORD:
                    reporter.line(f"{job.trial.slug}: {job.text}; the same command submits it again")
                    left.remove(key)
            time.sleep(PERIOD)

    @classmethod
    def active(cls, folder: Path) -> set[str]:
        """Return the trials whose jobs the cluster may still run."""
        return {submitted.trial.id for submitted in submitted_trials(folder).values() if submitted.state in ACTIVE}

    @classmethod
    def status(cls, folder: Path) -> list[str]:
        """Return the counts, and a line for each trial that runs, or has ended without a record."""
        trials = submitted_trials(folder)
        counts = Counter(trial.state for trial in trials.values() if trial.state != "done")
        if not counts:
            return []
        total = ", ".join(f"{counts[state]} {state}" for state in ("running", "waiting", "ended") if counts[state])
        shown = {key: trial for key, trial in trials.items() if trial.state in ("running", "ended")}
        return [f"on the cluster: {total}", *(f"  {key}  {trial.state}: {trial.text}" for key, trial in shown.items())]

    @classmethod
    def cancel(cls, folder: Path) -> list[str]:
        """Cancel all jobs of the folder that the cluster may still run."""
        counts = Counter(job.submission for job in submitted_trials(folder).values() if job.state in ACTIVE)
        for name in counts:
            run_program("scancel", f"--name={name}")
        text = "without a record, which a run submits again"
        return [f"{folder}: cancelled {name}; {trials_text(count)} {text}" for name, count in counts.items()]


def resources(trials: Sequence[Trial], section: SlurmSection) -> dict[str, str | int | None]:
    """Return the options of sbatch for each job that runs these trials."""
    cuda = any(trial.device == "cuda" for trial in trials)
    return {
        **section.model_dump(include={"partition", "account", "qos", "constraint"}),
        "time": None if section.time is None else math.ceil(section.time / 60),
        "mem": None if section.memory is None else f"{math.ceil(section.memory / (1 << 20))}M",
        "nodes": 1,
        "ntasks": 1,
        "cpus-per-task": section.cpus or max(trial.threads for trial in trials),
        "gres": section.gres or ("gpu:1" if cuda else None),
        "exclusive": any(trial.alone for trial in trials) or None,
        "open-mode": "append",  # of a job that is queued again
        "requeue": True,
    }


def _script(place: Path, run_options: RunOptions) -> str:
    """Return the script of a job.

    `exec`: the job is the Python process, which receives the cluster's signals, not a shell that they would end.
    """
    from harness.datasets import Store

    lines = ["#!/bin/sh", f"export INVERTBENCH_CACHE={shlex.quote(str(Store.at(run_options.root).cache))}"]
    if "site-packages" not in PROJECT.parts:
        lines.append(f'export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}"{shlex.quote(str(PROJECT))}')
    python, folder = shlex.quote(sys.executable), shlex.quote(str(place))
    return "\n".join([*lines, f"exec {python} -P -m harness.execution.slurm.submissions {folder}", ""])
