"""Run trials as jobs of a SLURM cluster: submit them, wait for their records, cancel them."""

from __future__ import annotations

import math
import secrets
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from harness.core.errors import UserError
from harness.core.records import Record
from harness.core.run_options import PROJECT, RunOptions
from harness.core.trial import Trial
from harness.execution.agenda import trials_text
from harness.execution.folder import writing
from harness.execution.outcome import digest, record_path
from harness.execution.progress import Reporter
from harness.execution.slurm.section import SlurmSection
from harness.execution.slurm.submissions import FOLDER, Submission, run_program, submitted_trials

LONGEST_WAIT = 10.0  # seconds between two looks at the shared disk and the queue
LATE_RECORD = 15.0  # seconds between the end of a job and the arrival of its record, as shared disks are slow
LONGEST_END = 60.0  # seconds for cancelled jobs to end


def submit(
    trials: Sequence[Trial], run_options: RunOptions, section: SlurmSection, jobs: int | None = None
) -> list[str]:
    """Submit trials as one array of jobs, runtime trials as another job, alone on its node; return a line for each.

    `jobs`: those that run at once, over the section's.

    Raises:
        UserError: SLURM is missing here, or sbatch refuses the job.
    """
    run_options = replace(run_options, out=run_options.out.absolute())
    section = section if jobs is None else section.model_copy(update={"throttle": jobs})
    alone = [trial for trial in trials if trial.alone]
    others = [trial for trial in trials if not trial.alone]
    size = section.trials_per_job
    arrays = [[others[start : start + size] for start in range(0, len(others), size)], [alone] if alone else []]
    return [_submit(array, run_options, section) for array in arrays if array]


def _submit(jobs: Sequence[Sequence[Trial]], run_options: RunOptions, section: SlurmSection) -> str:
    trials = [trial for job in jobs for trial in job]
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}"
    place = run_options.out / FOLDER / stamp
    submission = Submission(
        name=f"invertbench-{trials[0].suite}-{stamp}",
        jobs=tuple(map(tuple, jobs)),
        before={trial.id: old for trial in trials if (old := digest(record_path(run_options.out, trial)))},
        run_options=run_options,
    )
    with writing(run_options.out):
        submission.save(place)  # before sbatch, so that the jobs of a run killed in between can be found by name
    options: dict[str, str | int | bool | None] = {
        "job-name": submission.name,
        "array": f"0-{len(jobs) - 1}%{section.throttle or len(jobs)}",
        "output": f"{str(place).replace('%', '%%')}/%a.log",
        **resources(trials, section),
    }
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    arguments = [f"--{name}" if value is True else f"--{name}={value}" for name, value in given.items()]
    try:
        answer = run_program("sbatch", "--parsable", *arguments, text=_script(place, run_options))
    except UserError as error:
        shutil.rmtree(place, ignore_errors=True)  # no jobs exist
        raise UserError(f"{error}; see cluster: in the suite, and --cluster") from error
    number = answer.strip().partition(";")[0]
    return f"submitted job {number}: {len(jobs)} of {submission.name}, {len(trials)} trials"


def resources(trials: Sequence[Trial], section: SlurmSection) -> dict[str, str | int | bool | None]:
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
        "exclusive": any(trial.alone for trial in trials),
        "open-mode": "append",  # of a job that is queued again
        "requeue": True,
        **section.options,
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
    return "\n".join([*lines, f"exec {python} -P -m harness.execution.slurm.job {folder}", ""])


def follow(
    folder: Path, trials: Sequence[Trial], reporter: Reporter, stop_at: Callable[[Record], bool] | None = None
) -> None:
    """Wait until the cluster has nothing more to do for these submitted trials, and report their ends.

    A record for which `stop_at` is true cancels the remaining trials.
    """
    left = {trial.id for trial in trials}
    started: set[str] = set()
    ended: dict[str, float] = {}  # when the end of a job without a record was seen
    period = 1.0
    while left:
        stopped = False
        for key, job in submitted_trials(folder, left).items():
            if job.state in ("running", "done") and key not in started:
                started.add(key)
                reporter.started(job.trial)
            if job.record is not None:
                reporter.finished(job.trial, job.record)
                left.remove(key)
                stopped = stopped or (stop_at is not None and stop_at(job.record))
            elif job.active:
                ended.pop(key, None)
            elif time.monotonic() - ended.setdefault(key, time.monotonic()) > LATE_RECORD:
                reporter.line(f"{job.trial.slug}: {job.text}; the same command submits it again")
                left.remove(key)
        if stopped:
            reporter.line("--fail-fast: the remaining trials are cancelled")
            cancel_all(folder)
            return
        time.sleep(period)
        period = min(LONGEST_WAIT, 1.2 * period)


def cancel_all(folder: Path) -> list[str]:
    """Cancel all jobs of a folder that the cluster may still run, and wait for their end; return a line for each."""
    counts = Counter(job.submission for job in submitted_trials(folder).values() if job.active)
    for name in counts:
        run_program("scancel", f"--name={name}")
    end = time.monotonic() + LONGEST_END
    while counts and any(job.active for job in submitted_trials(folder).values()) and time.monotonic() < end:
        time.sleep(1.0)
    text = "without a record, which a run submits again"
    return [f"{folder}: cancelled {name}; {trials_text(count)} {text}" for name, count in counts.items()]
