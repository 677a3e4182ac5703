"""Trials that were submitted to a cluster, and their state.

        slurm/<time>-<random>/submission.json   the trials of each job, and the options of the run; never changed
        slurm/<time>-<random>/<index>.log       the output of a job

A trial is done when its record differs from the one that existed when it was submitted. The queue says whether a job
waits, runs or has ended, and has forgotten it some minutes after its end: a cluster without accounting has no `sacct`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from harness.core.errors import UserError
from harness.core.files import RECORD, read_file, read_text, write_atomically
from harness.core.records import Record
from harness.core.run_options import RunOptions
from harness.core.settings import Settings
from harness.core.texts import visible
from harness.core.trial import AnyTrial, Trial
from harness.execution.outcome import interrupted, left_record

FOLDER = "slurm"
FILE = "submission.json"
ANSWER_SECONDS = 60.0  # for the cluster's answer
FINAL = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT"),
}
"""The states of jobs that have ended."""


class Submission(Settings):
    """One array of jobs."""

    name: Annotated[str, Field(pattern=r"^invertbench-[A-Za-z0-9_-]+$")]  # of the jobs in the queue
    jobs: tuple[tuple[AnyTrial, ...], ...]  # the trials of each job, which does them in sequence
    before: dict[str, str]  # trial id -> digest of the record that existed, if one did
    run_options: RunOptions

    def save(self, place: Path) -> None:
        """Write `place/submission.json`."""
        write_atomically(place / FILE, self.model_dump_json(indent=1).encode() + b"\n")

    @classmethod
    def load(cls, place: Path) -> Submission:
        """Return the submission stored in `place`; raise a UserError if it is damaged."""
        path = place / FILE
        try:
            return cls.model_validate_json(read_file(path, RECORD))
        except (OSError, ValidationError) as error:
            fault = error.strerror if isinstance(error, OSError) else f"{error.error_count()} faults in it"
            raise UserError(
                f"{path}: not a readable submission ({fault}); cancel its jobs, then delete {place}"
            ) from error

    def settled(self, trial: Trial, out: Path) -> Record | None:
        """Return the record that the trial has left since its submission, unless it was merely interrupted."""
        record, _ = left_record(trial, out, self.before.get(trial.id))
        return None if record is None or interrupted(record) else record


@dataclass(frozen=True)
class SubmittedTrial:
    """The state of a trial that was submitted to a cluster."""

    trial: Trial
    submission: str  # name of its last submission
    state: Literal["waiting", "running", "ended", "done"]
    text: str = ""  # the state in words
    record: Record | None = None  # if it is done

    @property
    def active(self) -> bool:
        """True if the cluster may still run it, so that no other process should."""
        return self.state in ("waiting", "running")


class Submissions:
    """All trials that were submitted to a cluster from one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def places(self) -> dict[Path, Submission]:
        """Folder -> submission, in the order of time."""
        return {path.parent: Submission.load(path.parent) for path in sorted(self.folder.glob(f"{FOLDER}/*/{FILE}"))}

    def look(self, wanted: Collection[str] | None = None) -> dict[str, SubmittedTrial]:
        """Return trial id -> its state, for those trials (default: all) that were ever submitted."""
        last = {
            trial.id: (place, index, trial)
            for place, submission in self.places.items()
            for index, job in enumerate(submission.jobs)
            for trial in job
            if wanted is None or trial.id in wanted
        }
        records = {key: self.places[place].settled(trial, self.folder) for key, (place, _, trial) in last.items()}
        jobs = queued({self.places[place].name for key, (place, _, _) in last.items() if records[key] is None})
        states = {}
        for key, (place, index, trial) in last.items():
            name = self.places[place].name
            if records[key] is not None:
                states[key] = SubmittedTrial(trial, name, "done", record=records[key])
            elif jobs is None:
                states[key] = SubmittedTrial(trial, name, "waiting", "the queue does not answer")
            else:
                there = jobs.get(name, {})
                state = there.get(index, there.get(None, "gone"))
                if state in FINAL or state == "gone":
                    states[key] = SubmittedTrial(trial, name, "ended", _end_of(place / f"{index}.log", state))
                else:
                    states[key] = SubmittedTrial(trial, name, "waiting" if state == "PENDING" else "running", state)
        return states


def queued(names: Collection[str]) -> dict[str, dict[int | None, str]] | None:
    """Return the jobs of these names that the queue knows, name -> index -> state; None if it does not answer.

    The index is None for a job without one, or for all jobs of an array that never started.
    """
    jobs: dict[str, dict[int | None, str]] = {}
    if names:
        try:
            form = ("--noheader", "--array", "--states=all", "--format=%j|%K|%T")
            answer = run_program("squeue", f"--name={','.join(sorted(names))}", *form)
        except UserError:
            return None
        for line in answer.splitlines():
            name, index, state = (field.strip() for field in line.split("|"))
            jobs.setdefault(name, {})[int(index) if index.isdecimal() else None] = state
    return jobs


def run_program(program: str, *arguments: str, text: str = "") -> str:
    """Return what a program of SLURM prints; raise a UserError with its last line if it is missing or fails."""
    if shutil.which(program) is None:
        raise UserError(
            f"{program} is missing here: jobs are submitted and cancelled on a machine of a SLURM cluster; elsewhere, "
            "use --executor local"
        )
    try:
        return subprocess.run(
            [program, *arguments],
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_SECONDS,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        message = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        raise UserError(f"{program} failed: {visible(''.join(message))}") from error


def _end_of(log: Path, state: str) -> str:
    """Return why a job has left no record: its state, and the last line that it or SLURM has printed."""
    lines = []
    with contextlib.suppress(OSError):
        lines = [line for line in read_text(log, RECORD).splitlines() if line.strip() and not line.startswith("[")]
    printed = f": {visible(lines[-1][-500:])}" if lines else ""
    return f"its job has ended{'' if state == 'gone' else f' ({state})'}, and left no record{printed}"


def lines(trials: Mapping[str, SubmittedTrial]) -> list[str]:
    """Return the lines of `status`: the counts, and one for each trial that runs, or has ended without a record."""
    counts = Counter(trial.state for trial in trials.values() if trial.state != "done")
    if not counts:
        return []
    total = ", ".join(f"{counts[state]} {state}" for state in ("running", "waiting", "ended") if counts[state])
    shown = {key: trial for key, trial in trials.items() if trial.state in ("running", "ended")}
    return [f"on the cluster: {total}", *(f"  {key}  {trial.state}: {trial.text}" for key, trial in shown.items())]


def make_private(folder: Path) -> None:
    """Make a folder of mode 0700, whatever the umask; raise UserError if it exists and is not of this user."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
        # The umask may have narrowed the mode, and the folder around have added the set-group bit.
        folder.chmod(0o700)
    check_private(folder)


def check_private(*folders: Path) -> None:
    """Raise a UserError for the first of these that is not a folder of this user alone: jobs run what it names."""
    for folder in folders:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise UserError(
                f"{folder}: must be a folder of the user who submits, without rights for others (mode 0700), as jobs "
                f"run what is in it; it is of user {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}; remove "
                "it, if nothing in it is needed, and run again, or choose another --out"
            )
