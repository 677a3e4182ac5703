"""Trials that were submitted to a cluster, their state, and the jobs that run them.

        slurm/<time>-<random>/submission.json   the trials of each job, and the options of the run; never changed
        slurm/<time>-<random>/<index>.log       the output of a job

A trial is done when its record differs from the one that existed when it was submitted. The queue has the jobs that
wait or run; one that is not in it has ended: a cluster without accounting has no `sacct`. A job is

    SLURM_ARRAY_TASK_ID=<index> python -m harness.execution.slurm.submissions slurm/<time>-<random>

The cluster may start it again, as it requeues jobs when a node fails or one of higher priority arrives: trials that
have left their record are skipped, and a trial that was training resumes from its checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from harness.core.errors import UserError
from harness.core.files import RECORD, read_file, read_text, write_atomically
from harness.core.records import Record
from harness.core.run_options import RunOptions
from harness.core.settings import Settings
from harness.core.texts import visible
from harness.core.trial import AnyTrial, Trial
from harness.execution.outcome import RunProvenance, interrupted, left_record

FOLDER = "slurm"
FILE = "submission.json"
ANSWER_SECONDS = 60.0  # for the cluster's answer
SHARED = "on a node of the cluster: data root and cache must be on a shared disk"

ACTIVE = ("waiting", "running")

Queue = dict[str, dict[int | None, str]]
"""Name -> index -> state of jobs."""


class Submission(Settings):
    """One array of jobs."""

    name: Annotated[str, Field(pattern=r"^invertbench-[A-Za-z0-9_-]+$")]  # of the jobs in the queue
    jobs: tuple[tuple[AnyTrial, ...], ...]  # the trials of each job, which does them in sequence
    before: dict[str, str]  # trial id -> digest of the record that existed, if one did
    run_options: RunOptions

    def save(self, place: Path) -> None:
        """Write `place/submission.json`, in a new folder for this user alone: jobs run what it names."""
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir(mode=0o700)
        write_atomically(place / FILE, self.model_dump_json(indent=1).encode() + b"\n")

    def settled(self, trial: Trial, out: Path) -> Record | None:
        """Return the record that the trial has left since its submission, unless it was merely interrupted."""
        record, _ = left_record(trial, out, self.before.get(trial.id))
        return None if record is None or interrupted(record) else record


@cache  # a submission never changes
def load(place: Path) -> Submission:
    """Return the submission stored in `place`; raise a UserError if it is damaged."""
    try:
        return Submission.model_validate_json(read_file(place / FILE, RECORD))
    except (OSError, ValidationError) as error:
        fault = error.strerror if isinstance(error, OSError) else f"{error.error_count()} faults in it"
        raise UserError(
            f"{place / FILE}: not a readable submission ({fault}); cancel its jobs, then delete {place}"
        ) from error


@dataclass(frozen=True)
class SubmittedTrial:
    """The state of a trial that was submitted to a cluster."""

    trial: Trial
    submission: str  # name of its last submission
    record: Record | None  # None: it has left none
    state: str  # in `ACTIVE`, so that no other process should run it; "ended" or "done"
    text: str = ""  # the state in words


def submitted_trials(folder: Path, wanted: Collection[str] | None = None) -> dict[str, SubmittedTrial]:
    """Return trial id -> its state, for those trials (default: all) that were ever submitted from a folder."""
    last = {
        trial.id: (path.parent, index, trial)
        for path in sorted(folder.glob(f"{FOLDER}/*/{FILE}"))  # in the order of time
        for index, job in enumerate(load(path.parent).jobs)
        for trial in job
        if wanted is None or trial.id in wanted
    }
    records = {key: load(place).settled(trial, folder) for key, (place, _, trial) in last.items()}
    jobs = queued({load(place).name for key, (place, _, _) in last.items() if records[key] is None})
    states = {}
    for key, (place, index, trial) in last.items():
        name = load(place).name
        state = ("done", "") if records[key] is not None else _state(jobs, name, index, place)
        states[key] = SubmittedTrial(trial, name, records[key], *state)
    return states


def _state(jobs: Queue | None, name: str, index: int, place: Path) -> tuple[str, str]:
    """Return the state of a trial without a record, and its text."""
    if jobs is None:
        return "waiting", "the queue does not answer"
    there = jobs.get(name, {})
    if state := there.get(index, there.get(None)):
        return "waiting" if state == "PENDING" else "running", state
    lines = []
    with contextlib.suppress(OSError):
        lines = [line for line in read_text(place / f"{index}.log", RECORD).splitlines() if line.strip()]
    printed = [f": {visible(line[-500:])}" for line in lines if not line.startswith("[")][-1:]  # by it, or by SLURM
    return "ended", f"its job has ended, and left no record{''.join(printed)}"


def queued(names: Collection[str]) -> Queue | None:
    """Return the jobs of these names that wait or run, name -> index -> state; None if the queue does not answer.

    The index is None for a job without one, or for all jobs of an array that never started.
    """
    jobs: Queue = {}
    if names:
        try:
            form = ("--noheader", "--array", "--format=%j|%K|%T")
            answer = run_program("squeue", f"--name={','.join(sorted(names))}", *form)
        except UserError:
            return None
        for line in answer.splitlines():
            name, index, state = (field.strip() for field in line.split("|"))
            jobs.setdefault(name, {})[int(index) if index.isdecimal() else None] = state
    return jobs


def run_program(program: str, *arguments: str, text: str = "") -> str:
    """Return what a program of SLURM prints; raise a UserError with its last line if it is missing or fails."""
    try:
        done = subprocess.run(
            [program, *arguments],
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_SECONDS,
            check=True,
        )
    except FileNotFoundError as error:
        raise UserError(
            f"{program} is missing here: jobs are submitted and cancelled on a machine of a SLURM cluster; elsewhere, "
            "use --executor local"
        ) from error
    except (OSError, subprocess.SubprocessError) as error:
        message = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        raise UserError(f"{program} failed: {visible(''.join(message))}") from error
    return done.stdout


def run_job(place: Path, index: int) -> None:
    """Run the trials without a record of a job, in sequence; print why one cannot run, for `status`."""
    from harness.execution.remote import end_in_order, run_trial  # here: `status` needs no supervisor

    end_in_order()
    submission = load(place)
    run_options = submission.run_options
    provenance = RunProvenance(run_options.host)
    provenance.save(run_options.out)
    for trial in submission.jobs[index]:
        if submission.settled(trial, run_options.out) is None:
            try:
                run_trial(trial, run_options, provenance, SHARED, sys.stdout)
            except UserError as error:  # not caused by the trial: it gets no record, and the next run submits it again
                print(*str(error).split(), flush=True)


if __name__ == "__main__":
    try:
        run_job(Path(sys.argv[1]), int(os.environ["SLURM_ARRAY_TASK_ID"]))
    except UserError as error:
        raise SystemExit(str(error)) from None
