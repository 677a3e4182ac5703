"""Run trials as jobs of a SLURM cluster: submit them, wait for their records, cancel them.

submitit writes the script of the array and pickles, for each job, a reference to `slurm_job.run_job`, a path and a
number; the job unpickles them. Write access to that folder would permit running code as this user, so the folder,
`jobs/`, is accessible to this user alone (mode 0700). The results that submitit pickles are never read: the result of
a trial is its record. submitit's functions that call `sacct` or start steps by `srun` are not used, as a cluster may
have no accounting, and a job here is one process.
"""

from __future__ import annotations

import math
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.records import Record
from harness.core.run_options import PROJECT, RunOptions
from harness.core.trial import Trial
from harness.execution.folder import writing
from harness.execution.outcome import record_path
from harness.execution.progress import Reporter, make_reporter
from harness.execution.slurm.slurm_job import run_job
from harness.execution.slurm.squeue import Queue, cancel, needed
from harness.execution.slurm.submissions import (
    CANCELLED,
    FOLDER,
    Handed,
    Submission,
    Submissions,
    digest,
    is_cancelled,
    mark_cancelled,
)
from harness.planning.cluster import Cluster

LONGEST_LOOK = 5.0  # seconds between two reads of the shared disk
INSTALL = "pip install 'invertbench[slurm]'"


def run_on_cluster(
    trials: Sequence[Trial],
    attached: Sequence[Trial],
    run_options: RunOptions,
    cluster: Cluster,
    throttle: int | None = None,
    stop_at: Callable[[Record], bool] | None = None,
) -> None:
    """Submit trials and wait until the cluster has finished them; on KeyboardInterrupt their jobs continue.

    Args:
        trials: trials that are not submitted yet (see `submit`).
        attached: trials that are submitted already, to wait for as well.
        run_options, cluster, throttle, stop_at: as for `submit` and `follow`.
    """
    folder = run_options.out
    for line in submit(trials, run_options, cluster, throttle) if trials else ():
        print(line, flush=True)
    try:
        with make_reporter(len(trials) + len(attached)) as reporter:
            follow(folder, [*trials, *attached], reporter, stop_at, cluster.heartbeat)
    except KeyboardInterrupt:
        print(
            f"the jobs continue: the same command waits for them again, `python -m harness status {folder}` shows "
            f"them, and `python -m harness cancel {folder}` ends them",
            file=sys.stderr,
        )
        raise


def submit(
    trials: Sequence[Trial], run_options: RunOptions, cluster: Cluster, throttle: int | None = None
) -> list[str]:
    """Submit trials to the cluster as one array of jobs; runtime trials form another job, alone on its node.

    Args:
        trials: trials that are not submitted yet.
        run_options: options of the run; its folders are on a shared disk.
        cluster: the resources that jobs request.
        throttle: limit on jobs at once, in place of the cluster's.

    Returns:
        A line of text for each array.

    Raises:
        UserError: SLURM or submitit is missing here, or sbatch refuses the job.
    """
    needed("sbatch")
    root = None if run_options.root is None else run_options.root.absolute()
    run_options = replace(run_options, out=run_options.out.absolute(), root=root)
    timed = [trial for trial in trials if trial.alone]
    others = [trial for trial in trials if not trial.alone]
    size = cluster.trials_per_job
    jobs = [others[start : start + size] for start in range(0, len(others), size)]
    at_once = throttle or cluster.throttle
    said = [_submit(jobs, run_options, cluster, at_once, alone=False)] if jobs else []
    return said + ([_submit([timed], run_options, cluster, at_once, alone=True)] if timed else [])


def _submit(
    jobs: Sequence[Sequence[Trial]], run_options: RunOptions, cluster: Cluster, at_once: int | None, alone: bool
) -> str:
    from harness.datasets import Store

    trials = [trial for job in jobs for trial in job]
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}"
    place = run_options.out / FOLDER / stamp
    submission = Submission.model_validate(
        {
            "name": f"invertbench-{trials[0].suite}-{stamp}",
            "jobs": tuple(tuple(job) for job in jobs),
            "before": {one.id: found for one in trials if (found := digest(record_path(run_options.out, one)))},
            "run_options": run_options,
            "cache": Store.at(run_options.root).cache,
            "heartbeat": cluster.heartbeat,
        }
    )
    with writing(run_options.out):
        (place / "jobs").mkdir(parents=True)
        (place / "jobs").chmod(0o700)
        submission.save(place)  # before sbatch, so that the jobs of a run killed in between can be found by name
    try:
        number = _sbatch(place, submission, parameters(trials, cluster, at_once, alone))
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
    executor.update_parameters(job_name=submission.name, setup=_exports(submission), **asked)
    try:
        numbers = range(len(submission.jobs))
        handed = executor.map_array(run_job, [str(place)] * len(numbers), numbers)
    except (FailedJobError, FailedSubmissionError, OSError) as error:
        said = " ".join(str(error).split())[-500:]
        raise UserError(f"sbatch refused the job: {said}; see cluster: in the suite, and --cluster") from error
    return str(handed[0].job_id).partition("_")[0]


def parameters(trials: Sequence[Trial], cluster: Cluster, at_once: int | None, alone: bool) -> dict[str, Any]:
    """Return submitit's parameters for the script of the array."""
    cuda = any(trial.device == "cuda" for trial in trials)
    more: dict[str, Any] = {"requeue": True, **cluster.options}
    if cluster.memory is not None:
        more["mem"] = f"{math.ceil(cluster.memory / (1 << 20))}M"
    return {
        "partition": cluster.partition,
        "account": cluster.account,
        "qos": cluster.qos,
        "constraint": cluster.constraint,
        "gres": cluster.gres or ("gpu:1" if cuda else None),
        "time": None if cluster.time is None else math.ceil(cluster.time / 60),
        "cpus_per_task": cluster.cpus or max(trial.threads for trial in trials),
        "exclusive": True if alone else None,
        "array_parallelism": at_once or len(trials),
        "additional_parameters": more,
        "stderr_to_stdout": True,
        "use_srun": False,
        "wckey": None,
    }


def _exports(submission: Submission) -> list[str]:
    """Return lines of the script that tell the nodes the locations of this program and of the cache."""
    lines = [f"export INVERTBENCH_CACHE={shlex.quote(str(submission.cache))}"]
    if "site-packages" not in PROJECT.parts:
        lines.append(f'export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}"{shlex.quote(str(PROJECT))}')
    return lines


def follow(
    folder: Path,
    trials: Sequence[Trial],
    reporter: Reporter,
    stop_at: Callable[[Record], bool] | None = None,
    period: float = LONGEST_LOOK,
) -> None:
    """Wait until the cluster has nothing more to do for these trials, and report their progress.

    Args:
        folder: OUT/<suite>.
        trials: trials that were submitted, now or before.
        reporter: receives starts, progress and ends.
        stop_at: predicate for a record that cancels the remaining trials (--fail-fast); None: none does.
        period: largest number of seconds between two reads; the queue is queried a third as often.
    """
    watch = _ProgressReport(trials, reporter)
    period = min(LONGEST_LOOK, period)
    submissions = Submissions(folder, Queue(3 * period))
    while True:
        looked = submissions.look(set(watch.open))
        for record in watch.tell(looked, grace=6 * period):
            if stop_at is not None and stop_at(record):
                reporter.line("--fail-fast: what is left is cancelled")
                cancel_all(folder)
                return
        if not watch.open:
            return
        time.sleep(period)


class _ProgressReport:
    """The progress of trials that was already reported."""

    def __init__(self, trials: Iterable[Trial], reporter: Reporter) -> None:
        self.open = {trial.id: trial for trial in trials}
        self.reporter = reporter
        self._started: set[str] = set()
        self._silent: set[str] = set()
        self._gone: dict[str, float] = {}

    def tell(self, looked: dict[str, Handed], grace: float) -> list[Record]:
        """Report changes, and return the new records.

        Args:
            looked: the state of all unfinished trials.
            grace: seconds between the end of a job and the arrival of its record, as shared disks are slow.
        """
        records = []
        for one in looked.values():
            key = one.trial.id
            if one.state in ("running", "done") and key not in self._started:
                self._started.add(key)
                self.reporter.started(one.trial)
            if one.record is not None:
                records.append(one.record)
                self.reporter.finished(one.trial, one.record)
                del self.open[key]
            elif one.state == "running" and one.beat is not None:
                self.reporter.update(one.trial, one.beat.fraction, one.beat.text)
                self._silent.discard(key)
            elif one.state in ("lost", "cancelled"):
                self._lost(one, grace)
            if one.active:
                self._gone.pop(key, None)
        return records

    def _lost(self, one: Handed, grace: float) -> None:
        key = one.trial.id
        if one.active:
            if one.state == "lost" and key not in self._silent:
                self._silent.add(key)
                self.reporter.line(f"{one.trial.slug}: lost: {one.text}")
        elif time.monotonic() - self._gone.setdefault(key, time.monotonic()) >= grace or one.state == "cancelled":
            self.reporter.line(f"{one.trial.slug}: {one.state}: {one.text}; the same command submits it again")
            del self.open[key]


def cancel_all(folder: Path) -> list[str]:
    """Cancel all jobs of a folder that the cluster may still run; return a line of text for each array.

    Raises:
        UserError: scancel fails, or is missing.
    """
    submissions = Submissions(folder)
    last = [one for one in submissions.look().values() if one.state != "done"]
    lines = []
    for place, submission in submissions.places.items():
        left = [one.trial for one in last if one.submission == submission.name]
        if left and not is_cancelled(place):
            with writing(folder):
                mark_cancelled(place)  # first, because a job checks for it before it begins a trial
            try:
                cancel([submission.name])
            except UserError:
                (place / CANCELLED).unlink(missing_ok=True)
                raise
            count = f"{len(left)} trial{'' if len(left) == 1 else 's'}"
            lines.append(f"{folder}: cancelled {submission.name}; {count} without a record, which a run submits again")
    return lines
