"""Trials that were submitted to a cluster, and their state: files on the shared disk, supplemented by the queue.

        slurm/<time>-<random>/submission.json   the trials of each job, and the options of the run; never changed
        slurm/<time>-<random>/cancelled         exists once the submission was cancelled
        slurm/<time>-<random>/faults/<id>.txt   why a job could not begin a trial
        slurm/<time>-<random>/jobs/             files of submitit
        heartbeats/<id>.json                    heartbeat of a running trial

The folder `slurm` and those in it are for this user alone: jobs execute their content.

A trial is done when its record differs from the one that existed when it was submitted. No other evidence counts:
the queue may have forgotten a job, and a cluster without accounting keeps no history beyond it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from harness.core.errors import UserError
from harness.core.files import RECORD, TEXT, checked_name, read_file, read_text, write_atomically
from harness.core.records import Record
from harness.core.run_options import RunOptions, shown_seconds
from harness.core.settings import Settings
from harness.core.trial import AnyTrial, Trial
from harness.execution.outcome import interrupted, left_record
from harness.execution.slurm.squeue import Jobs, ask

FOLDER = "slurm"
FILE = "submission.json"
CANCELLED = "cancelled"
LOST_BEATS = 4  # missing in succession

State = Literal["waiting", "running", "lost", "cancelled", "done"]


class Submission(Settings):
    """One array of jobs."""

    name: Annotated[str, Field(pattern=r"^invertbench-[A-Za-z0-9_-]+$")]  # of the jobs in the queue
    jobs: tuple[tuple[AnyTrial, ...], ...]  # the trials of each job, which does them in sequence
    before: dict[str, str]  # trial id -> digest of the record that existed, if one did
    run_options: RunOptions
    cache: Path  # folder of prepared data, shared by all machines
    heartbeat: float  # seconds between two heartbeats

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


class Beat(Settings):
    """The heartbeat of a running trial, with its progress."""

    submission: str  # its name
    job: str  # SLURM's name of the job, such as "17_3"
    fraction: float = 0.0
    text: str = ""
    seconds: float  # until the next heartbeat
    node: str | None = None  # name of the machine, if the run permits it

    @property
    def patience(self) -> float:
        """Seconds of silence after which the trial counts as lost."""
        return LOST_BEATS * self.seconds


def beat_path(out: Path, name: str) -> Path:
    """Return `out/heartbeats/<trial id>.json`."""
    return out / "heartbeats" / f"{checked_name(name)}.json"


def read_beat(out: Path, name: str) -> tuple[Beat, float] | None:
    """Return a trial's last heartbeat and its age in seconds; None without one."""
    path = beat_path(out, name)
    with contextlib.suppress(OSError, ValidationError):
        return Beat.model_validate_json(read_file(path, TEXT)), max(0.0, time.time() - path.stat().st_mtime)
    return None


def fault_path(place: Path, name: str) -> Path:
    """Return `place/faults/<trial id>.txt`."""
    return place / "faults" / f"{checked_name(name)}.txt"


def job_folders(place: Path) -> tuple[Path, ...]:
    """Return the folders of a submission that are for this user alone, outermost first: `slurm/`, `place`, `jobs/`."""
    return place.parent, place, place / "jobs"


def is_cancelled(place: Path) -> bool:
    """Return whether the submission was cancelled."""
    return (place / CANCELLED).exists()


@dataclass(frozen=True)
class SubmittedTrial:
    """The state of a trial that was submitted to a cluster."""

    trial: Trial
    submission: str  # name of its last submission
    state: State
    text: str  # the state in words
    active: bool  # whether the cluster may still run it, so that no other process should
    beat: Beat | None = None  # from this submission
    record: Record | None = None  # if it is done


class Submissions:
    """All trials that were submitted to a cluster from one folder; `queue` is asked about those without a record."""

    def __init__(self, folder: Path, queue: Callable[[Collection[str]], Mapping[str, Jobs] | None] = ask) -> None:
        self.folder = folder
        self.queue = queue
        self.places = {path.parent: Submission.load(path.parent) for path in sorted(folder.glob(f"{FOLDER}/*/{FILE}"))}

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
        places = {place for key, (place, _, _) in last.items() if records[key] is None and not is_cancelled(place)}
        jobs = self.queue(sorted(self.places[place].name for place in places))
        states = {}
        for key, (place, index, trial) in last.items():
            name, record = self.places[place].name, records[key]
            if record is None:
                states[key] = self._unsettled(place, index, trial, None if jobs is None else jobs.get(name, {}))
            else:
                states[key] = SubmittedTrial(trial, name, "done", "done", False, record=record)
        return states

    def _unsettled(self, place: Path, index: int, trial: Trial, jobs: Jobs | None) -> SubmittedTrial:
        name = self.places[place].name
        beat, age = read_beat(self.folder, trial.id) or (None, 0.0)
        if beat is not None and beat.submission != name:
            beat = None
        if is_cancelled(place):
            ending = beat is not None and age <= beat.patience
            return SubmittedTrial(trial, name, "cancelled", "its job was cancelled", ending)
        try:
            fault = read_text(fault_path(place, trial.id)).strip() or None
        except OSError:
            fault = None
        state, text, active = judge(beat, age, index, jobs, fault)
        if state == "lost" and not active:
            try:
                with contextlib.suppress(OSError):
                    check_private(*job_folders(place))
            except UserError as error:  # for which the job has ended
                text = str(error)
        return SubmittedTrial(trial, name, state, text, active, beat)


def judge(
    beat: Beat | None, age: float, index: int, jobs: Jobs | None, fault: str | None = None
) -> tuple[State, str, bool]:
    """Return the state of a trial without a record, as text too, and whether the cluster may still run it.

    Args:
        beat, age: its last heartbeat, if there is one, and the seconds since.
        index: of its job in the array.
        jobs: of the array in the queue; None if the queue does not answer.
        fault: why its job could not begin it.
    """
    job = None if jobs is None else jobs.get(index, jobs.get(None))
    if jobs is not None and (job is None or not job.active):
        cause = fault or ("its job has ended" if job is None else f"its job has ended: {job.text()}")
        return "lost", f"{cause}; it left no record", False
    if fault is not None and beat is None:
        return "lost", f"{fault}; it left no record", False
    if beat is None or (job is not None and job.state == "PENDING"):
        return "waiting", "the queue does not answer" if job is None else job.text(), True
    where = f" on {beat.node}" if beat.node else ""
    if age <= beat.patience:
        return "running", f"{beat.text or 'begins'} (heartbeat {shown_seconds(age)} ago{where})", True
    text = f"no heartbeat for {shown_seconds(age)}{where}"
    if job is None:
        return "lost", f"{text}, and the queue does not answer", False
    return "lost", f"{text}; the queue still has its job: {job.text()}", True


def counted(trials: Iterable[SubmittedTrial]) -> str:
    """Return counts as text, "on the cluster: 2 running, 3 waiting, 1 lost"; empty without unfinished trials."""
    counts = Counter(trial.state for trial in trials)
    parts = [f"{counts[state]} {state}" for state in ("running", "waiting", "lost", "cancelled") if counts[state]]
    return f"on the cluster: {', '.join(parts)}" if parts else ""


def lines(trials: Mapping[str, SubmittedTrial]) -> list[str]:
    """Return the lines of `status`: the counts, and one for each trial that runs or is lost."""
    total = counted(trials.values())
    shown = [
        f"  {key}  {trial.state}: {trial.text}" for key, trial in trials.items() if trial.state in ("running", "lost")
    ]
    return [total, *shown] if total else []


PRIVATE = 0o700
OTHERS = 0o077  # rights of the group and of all others
RULE = "must be a folder of the user who submits, without rights for others (mode 0700): jobs execute what is in it"
HINT = "remove it, if nothing in it is needed, and run again, or choose another --out"


def make_private(folder: Path) -> None:
    """Make a folder of mode 0700, whatever the umask; raise UserError if it exists and is not of this user."""
    folder.mkdir(mode=PRIVATE, exist_ok=True)
    if folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
        # The umask may have narrowed the mode, and the folder around have added the set-group bit.
        folder.chmod(PRIVATE)
    check_private(folder)


def check_private(*folders: Path) -> None:
    """Raise a UserError for the first of these that is not a folder of this user alone."""
    for folder in folders:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & OTHERS:
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no folder"
            facts = f"it is {kind} of user {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}"
            raise UserError(f"{folder}: {RULE}; {facts}; {HINT}")


def check_in_shell(*folders: Path) -> str:
    """Return a line of shell that ends a job unless these are folders of this user alone."""
    names = " ".join(shlex.quote(str(folder)) for folder in folders)
    refuse = f'echo "$folder: {RULE}; {HINT}" >&2; exit 1'
    return (
        f'for folder in {names}; do case "$(stat -c %F:%u:%a "$folder")" in directory:{os.getuid()}:*00) ;; '
        f"*) {refuse} ;; esac; done"
    )
