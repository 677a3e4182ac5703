"""What was handed to a cluster, and what became of it: files on the shared disk, and what the queue adds.

    slurm/<time>-<random>/submission.json   the trials of each job, and what the run granted them; never changed
    slurm/<time>-<random>/cancelled         it was cancelled
    slurm/<time>-<random>/faults/<id>.txt   why a job could not begin a trial
    slurm/<time>-<random>/jobs/             submitit's own files, for this user alone
    heartbeats/<id>.json                    a trial that runs

A trial is done when its record is another than the one that was there when it was submitted. Nothing else is truth:
the queue may have forgotten a job, and a cluster without accounting has no memory beyond it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from harness.core.errors import UserError
from harness.core.records import Record, read_record, write_atomically
from harness.core.run_options import Conditions, shown_seconds
from harness.core.settings import AnyTrial, Settings, Trial
from harness.execution.outcome import interrupted, record_path
from harness.execution.slurm.squeue import Jobs, Queue

SLURM = "slurm"
FOLDER = SLURM
FILE = "submission.json"
CANCELLED = "cancelled"
LOST_BEATS = 4  # missing in a row

State = Literal["waiting", "running", "lost", "cancelled", "done"]


class Submission(Settings):
    """One array of jobs.

    Attributes:
        name: of the jobs, by which the queue knows them.
        jobs: trials of each job, which does them in sequence.
        before: trial id -> digest of the record that was there; trials without one are not in it.
        conditions: of the run.
        cache: folder of prepared data, shared by all machines.
        heartbeat: seconds between two signs of life.
    """

    name: Annotated[str, Field(pattern=r"^invertbench-[A-Za-z0-9_-]+$")]
    jobs: tuple[tuple[AnyTrial, ...], ...]
    before: dict[str, str]
    conditions: Conditions
    cache: Path
    heartbeat: float

    def save(self, place: Path) -> None:
        """Write `place/submission.json`."""
        write_atomically(place / FILE, self.model_dump_json(indent=1).encode() + b"\n")

    @classmethod
    def load(cls, place: Path) -> Submission:
        """Read it; a UserError where it is damaged."""
        path = place / FILE
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            what = error.strerror if isinstance(error, OSError) else f"{error.error_count()} faults in it"
            raise UserError(
                f"{path}: not a readable submission ({what}); cancel its jobs, then delete {place}"
            ) from error

    def settled(self, trial: Trial, out: Path) -> Record | None:
        """The record that the trial has left since it was submitted, unless it only says that it was interrupted."""
        path = record_path(out, trial)
        if digest(path) in (None, self.before.get(trial.id)):
            return None
        with contextlib.suppress(UserError):
            record = read_record(path)
            return None if interrupted(record) else record
        return None


def digest(path: Path) -> str | None:
    """SHA-256 of a file; None where there is none."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


class Beat(Settings):
    """The sign of life of a running trial.

    Attributes:
        submission: name.
        job: as SLURM calls it, "17_3".
        fraction, text: how far the trial is.
        seconds: until the next sign.
        node: where it runs, if the run was to tell.
    """

    submission: str
    job: str
    fraction: float = 0.0
    text: str = ""
    seconds: float
    node: str | None = None

    @property
    def patience(self) -> float:
        """Seconds of silence after which the trial counts as lost."""
        return LOST_BEATS * self.seconds


def beat_path(out: Path, name: str) -> Path:
    """`out/heartbeats/<trial id>.json`."""
    return out / "heartbeats" / f"{name}.json"


def read_beat(out: Path, name: str) -> tuple[Beat, float] | None:
    """A trial's last sign of life and its age in seconds; None where there is none."""
    path = beat_path(out, name)
    with contextlib.suppress(OSError, ValidationError):
        return Beat.model_validate_json(path.read_bytes()), max(0.0, time.time() - path.stat().st_mtime)
    return None


def fault_path(place: Path, name: str) -> Path:
    """`place/faults/<trial id>.txt`."""
    return place / "faults" / f"{name}.txt"


@dataclass(frozen=True)
class Handed:
    """A trial that was handed to a cluster.

    Attributes:
        trial: which.
        state: what is known of it.
        text: the same for people.
        active: whether the cluster may yet work on it, so that nobody else should.
        submission: the last one that it was in.
        beat: its sign of life, if it runs.
        record: what it left, if it is done.
    """

    trial: Trial
    state: State
    text: str
    active: bool
    submission: str
    beat: Beat | None = None
    record: Record | None = None


class Submissions:
    """All that was handed to a cluster from one folder.

    Args:
        folder: OUT/<suite>.
        queue: asked about what has no record yet.
    """

    def __init__(self, folder: Path, queue: Queue | None = None) -> None:
        self.folder = folder
        self.queue = queue or Queue()
        self.places: dict[Path, Submission] = {}
        for path in sorted(folder.glob(f"{FOLDER}/*/{FILE}")):
            self.places[path.parent] = Submission.load(path.parent)

    def look(self, wanted: Collection[str] | None = None) -> dict[str, Handed]:
        """Trial id -> what is known of it, of those trials (default: all) that were ever handed over."""
        last = {
            trial.id: (place, index, trial)
            for place, submission in self.places.items()
            for index, job in enumerate(submission.jobs)
            for trial in job
            if wanted is None or trial.id in wanted
        }
        found = {}
        unsettled = {}
        for name, (place, index, trial) in last.items():
            record = self.places[place].settled(trial, self.folder)
            if record is None:
                unsettled[name] = place, index, trial
            else:
                found[name] = Handed(trial, "done", "done", False, self.places[place].name, record=record)
        asked = {self.places[place].name for place, _, _ in unsettled.values() if not is_cancelled(place)}
        jobs = self.queue.jobs(asked)
        for name, (place, index, trial) in unsettled.items():
            found[name] = self._unsettled(
                place, index, trial, None if jobs is None else jobs.get(self.places[place].name, {})
            )
        return found

    def _unsettled(self, place: Path, index: int, trial: Trial, jobs: Jobs | None) -> Handed:
        name = self.places[place].name
        last = read_beat(self.folder, trial.id)
        beat, age = last if last is not None and last[0].submission == name else (None, 0.0)
        if is_cancelled(place):
            ending = beat is not None and age <= beat.patience
            return Handed(trial, "cancelled", "its job was cancelled", ending, name)
        fault = _read(fault_path(place, trial.id))
        state, text, active = judge(beat, age, index, jobs, fault)
        return Handed(trial, state, text, active, name, beat)


def at_work(folder: Path, executor: str) -> set[str]:
    """The trials that a cluster may yet work on.

    Args:
        folder: OUT/<suite>.
        executor: that is to run what is left.

    Raises:
        UserError: there are such trials, and others are to run on this machine beside them.
    """
    active = [one for one in Submissions(folder).look().values() if one.active]
    if active and executor != SLURM:
        raise UserError(
            f"{folder}: the jobs of a cluster work here ({counted(active)}); wait with --executor slurm, or end them "
            f"with `python -m harness cancel {folder}`"
        )
    return {one.trial.id for one in active if one.state != "cancelled"}


def judge(
    beat: Beat | None, age: float, index: int, jobs: Jobs | None, fault: str | None = None
) -> tuple[State, str, bool]:
    """State of a trial without a record, in words, and whether the cluster may yet work on it.

    Args:
        beat: its last sign of life, None where there is none.
        age: of that, in seconds.
        index: of its job in the array.
        jobs: what the queue knows of the array; None where the queue does not answer.
        fault: why its job could not begin it.
    """
    job = None if jobs is None else jobs.get(index, jobs.get(None))
    if jobs is not None and (job is None or not job.active):
        why = fault or ("its job has ended" if job is None else f"its job has ended: {job.text()}")
        return "lost", f"{why}; it left no record", False
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


def is_cancelled(place: Path) -> bool:
    """Whether the submission was cancelled."""
    return (place / CANCELLED).exists()


def mark_cancelled(place: Path) -> None:
    """Say so, for whoever waits for its trials."""
    write_atomically(place / CANCELLED, json.dumps({"at": time.time()}).encode())


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def counted(handed: Iterable[Handed]) -> str:
    """ "on the cluster: 2 running, 3 waiting, 1 lost"; empty where there is nothing to say."""
    counts: dict[str, int] = {}
    for one in handed:
        counts[one.state] = counts.get(one.state, 0) + 1
    parts = [f"{counts[state]} {state}" for state in ("running", "waiting", "lost", "cancelled") if state in counts]
    return f"on the cluster: {', '.join(parts)}" if parts else ""


def lines(found: Mapping[str, Handed]) -> list[str]:
    """What `status` says: the counts, and a line for each trial that runs or is lost."""
    total = counted(found.values())
    shown = [one for one in found.values() if one.state in ("running", "lost")]
    return [total, *(f"  {one.trial.id}  {one.state}: {one.text}" for one in shown)] if total else []
