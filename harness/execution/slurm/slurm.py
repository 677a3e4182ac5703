"""Run trials as jobs of a SLURM cluster: submit them, wait for their records, cancel them.

submitit writes the script of the array and pickles, for each job, a reference to `slurm_job.run_job`, a path and a
number; the job unpickles them. Write access to that folder would permit running code as this user, so it and those
around it up to `slurm/` are accessible to this user alone (mode 0700), and a job checks that before it begins. The
results that submitit pickles are never read: the result of a trial is its record. submitit's functions that call
`sacct` or start steps by `srun` are not used, as a cluster may have no accounting, and a job here is one process.
"""

from __future__ import annotations

import math
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.records import Record
from harness.core.run_options import PROJECT, RunOptions
from harness.core.trial import Trial
from harness.execution.agenda import trials_text
from harness.execution.folder import writing
from harness.execution.outcome import digest, record_path
from harness.execution.progress import Reporter
from harness.execution.slurm.slurm_job import run_job
from harness.execution.slurm.squeue import cancel, needed
from harness.execution.slurm.submissions import (
    CANCELLED,
    FOLDER,
    Submission,
    Submissions,
    check_in_shell,
    is_cancelled,
    job_folders,
    make_private,
)
from harness.planning.cluster import Cluster

LONGEST_WAIT = 10.0  # seconds between two looks at the shared disk and the queue
GRACE = 6  # looks between the end of a job and the arrival of its record, as shared disks are slow
INSTALL = "pip install 'invertbench[slurm]'"


def submit(trials: Sequence[Trial], run_options: RunOptions, cluster: Cluster) -> list[str]:
    """Submit trials as one array of jobs, runtime trials as another job, alone on its node; return a line for each.
    Raises:
        UserError: SLURM or submitit is missing here, or sbatch refuses the job.
    """
    if not trials:
        return []
    needed("sbatch")
    run_options = replace(run_options, out=run_options.out.absolute())
    alone = [trial for trial in trials if trial.alone]
    others = [trial for trial in trials if not trial.alone]
    size = cluster.trials_per_job
    arrays = [[others[start : start + size] for start in range(0, len(others), size)], [alone] if alone else []]
    return [_submit(jobs, run_options, cluster) for jobs in arrays if jobs]


def _submit(jobs: Sequence[Sequence[Trial]], run_options: RunOptions, cluster: Cluster) -> str:
    from harness.datasets import Store

    trials = [trial for job in jobs for trial in job]
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}"
    place = run_options.out / FOLDER / stamp
    submission = Submission.model_validate(
        {
            "name": f"invertbench-{trials[0].suite}-{stamp}",
            "jobs": tuple(map(tuple, jobs)),
            "before": {trial.id: old for trial in trials if (old := digest(record_path(run_options.out, trial)))},
            "run_options": run_options,
            "cache": Store.at(run_options.root).cache,
            "heartbeat": cluster.heartbeat,
        }
    )
    with writing(run_options.out):
        place.parent.parent.mkdir(parents=True, exist_ok=True)
        for folder in job_folders(place):
            make_private(folder)
        submission.save(place)  # before sbatch, so that the jobs of a run killed in between can be found by name
    try:
        number = _sbatch(place, submission, parameters(trials, cluster))
    except UserError:
        shutil.rmtree(place, ignore_errors=True)  # no jobs exist
        raise
    return f"submitted job {number}: {len(jobs)} of {submission.name}, {len(trials)} trials"


def _sbatch(place: Path, submission: Submission, asked: dict[str, Any]) -> str:
    try:
        import submitit
        from submitit.core.utils import FailedJobError, FailedSubmissionError
    except ImportError as error:
        raise UserError(f"--executor slurm needs submitit: {INSTALL}") from error
    # `exec`: the job is the Python process, which receives the cluster's signals, not a shell that they would end.
    executor = submitit.SlurmExecutor(folder=place / "jobs", python=f"exec {shlex.quote(sys.executable)}")
    executor.update_parameters(job_name=submission.name, setup=_setup(place, submission), **asked)
    try:
        numbers = range(len(submission.jobs))
        submitted = executor.map_array(run_job, [str(place)] * len(numbers), numbers)
    except (FailedJobError, FailedSubmissionError, OSError) as error:
        message = " ".join(str(error).split())[-500:]
        raise UserError(f"sbatch refused the job: {message}; see cluster: in the suite, and --cluster") from error
    return str(submitted[0].job_id).partition("_")[0]


def parameters(trials: Sequence[Trial], cluster: Cluster) -> dict[str, Any]:
    """Return submitit's parameters for the script of the array that runs these trials."""
    cuda = any(trial.device == "cuda" for trial in trials)
    more: dict[str, Any] = {"requeue": True, **cluster.options}
    if cluster.memory is not None:
        more["mem"] = f"{math.ceil(cluster.memory / (1 << 20))}M"
    return {
        **cluster.model_dump(include={"partition", "account", "qos", "constraint"}),
        "gres": cluster.gres or ("gpu:1" if cuda else None),
        "time": None if cluster.time is None else math.ceil(cluster.time / 60),
        "cpus_per_task": cluster.cpus or max(trial.threads for trial in trials),
        "exclusive": True if any(trial.alone for trial in trials) else None,
        "array_parallelism": cluster.throttle or len(trials),
        "additional_parameters": more,
        "stderr_to_stdout": True,
        "use_srun": False,
        "wckey": None,
    }


def _setup(place: Path, submission: Submission) -> list[str]:
    """Return lines of the script that check its folders, and that name the locations of this program and the cache."""
    lines = [check_in_shell(*job_folders(place)), f"export INVERTBENCH_CACHE={shlex.quote(str(submission.cache))}"]
    if "site-packages" not in PROJECT.parts:
        lines.append(f'export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}"{shlex.quote(str(PROJECT))}')
    return lines


def follow(
    folder: Path,
    trials: Sequence[Trial],
    reporter: Reporter,
    stop_at: Callable[[Record], bool] | None = None,
    period: float = LONGEST_WAIT,
) -> None:
    """Wait until the cluster has nothing more to do for these submitted trials, and report their progress.

    A record for which `stop_at` is true cancels the remaining trials. `period`: seconds between two looks.
    """
    period = min(LONGEST_WAIT, period)
    submissions = Submissions(folder)
    left = {trial.id for trial in trials}
    started: set[str] = set()
    silent: set[str] = set()  # trials without a heartbeat whose job the queue still has
    ended: dict[str, int] = {}  # looks since the job has ended without a record
    while True:
        stopped = False
        for key, job in submissions.look(left).items():
            if job.state in ("running", "done") and key not in started:
                started.add(key)
                reporter.started(job.trial)
            if job.record is not None:
                reporter.finished(job.trial, job.record)
                left.remove(key)
                stopped = stopped or (stop_at is not None and stop_at(job.record))
            elif job.beat is not None and job.state == "running":
                reporter.update(job.trial, job.beat.fraction, job.beat.text)
                silent.discard(key)
            elif job.state == "lost" and job.active and key not in silent:
                silent.add(key)
                reporter.line(f"{job.trial.slug}: lost: {job.text}")
            ended[key] = 0 if job.active else ended.get(key, 0) + 1
            if not job.active and (job.state == "cancelled" or (job.state == "lost" and ended[key] > GRACE)):
                reporter.line(f"{job.trial.slug}: {job.state}: {job.text}; the same command submits it again")
                left.remove(key)
        if stopped:
            reporter.line("--fail-fast: the remaining trials are cancelled")
            cancel_all(folder)
        if stopped or not left:
            return
        time.sleep(period)


def cancel_all(folder: Path) -> list[str]:
    """Cancel all jobs of a folder that the cluster may still run; return a line of text for each array."""
    submissions = Submissions(folder)
    open_trials = [job for job in submissions.look().values() if job.state != "done"]
    lines = []
    for place, submission in submissions.places.items():
        count = sum(job.submission == submission.name for job in open_trials)
        if count and not is_cancelled(place):
            with writing(folder):
                (place / CANCELLED).touch()  # first, because a job checks for it before it begins a trial
            try:
                cancel(submission.name)
            except UserError:
                (place / CANCELLED).unlink(missing_ok=True)
                raise
            text = f"{trials_text(count)} without a record, which a run submits again"
            lines.append(f"{folder}: cancelled {submission.name}; {text}")
    return lines
