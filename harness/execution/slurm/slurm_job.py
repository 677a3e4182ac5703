"""The work of a cluster job: run its trials in sequence, each supervised like any other, and with a heartbeat.

submitit starts `run_job` on a node. A job may be started more than once, as the cluster requeues it when a node
fails or a job of higher priority arrives; trials that have left their record are skipped, and a trial that was
training resumes from its checkpoint.
"""

from __future__ import annotations

import contextlib
import platform
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from harness.core.errors import UserError
from harness.core.files import TEMPORARY, write_atomically
from harness.core.trial import Trial
from harness.execution.data import check_prepared
from harness.execution.local.slots import make_slots
from harness.execution.local.supervisor import run_trials
from harness.execution.progress import Reporter
from harness.execution.provenance import RunProvenance
from harness.execution.slurm.submissions import (
    Beat,
    Submission,
    beat_path,
    check_private,
    fault_path,
    is_cancelled,
    job_folders,
    read_beat,
)

ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)
"""Signals that a cluster sends before it kills: at a job's time limit, on `scancel`, or on preemption."""


SHARED = "on a node of the cluster: data root and cache must be on a shared disk"


def run_job(place: str, index: int) -> None:
    """Run the trials without a record of job number `index` of the submission in the folder `place`."""
    from submitit import JobEnvironment  # an optional dependency, which has started this process

    for number in ENDS:
        signal.signal(number, _end)
    folder = Path(place)
    check_private(*job_folders(folder))
    submission = Submission.load(folder)
    run_options = submission.run_options
    provenance = RunProvenance(run_options.host)  # collected here: the trials run the source on this node
    provenance.save(run_options.out)
    for trial in submission.jobs[index]:
        if is_cancelled(folder):
            return
        if submission.settled(trial, run_options.out) is not None:
            continue
        fault = fault_path(folder, trial.id)
        fault.unlink(missing_ok=True)
        beat = Beat(
            submission=submission.name,
            job=JobEnvironment().job_id,
            seconds=submission.heartbeat,
            node=platform.node() if run_options.host else None,
        )
        try:
            wait_for_silence(run_options.out, trial, beat.job)
            with Heartbeat(run_options.out, trial, beat) as heartbeat:
                check_prepared(trial, run_options.root, SHARED)
                run_trials([trial], run_options, make_slots([trial], 1), heartbeat, provenance=provenance.of)
        except UserError as error:  # not caused by the trial: it gets no record, and the next run submits it again
            print(error, flush=True)
            write_atomically(fault, f"{error}\n".encode())


def _end(number: int, frame: FrameType | None) -> None:
    """End in order: the trial's processes, the heartbeat, and this process."""
    raise SystemExit(128 + number)


class Heartbeat(Reporter):
    """Write `out/heartbeats/<trial id>.json` periodically while in the context; only the trial's progress changes."""

    def __init__(self, out: Path, trial: Trial, beat: Beat) -> None:
        super().__init__(1, sys.stdout)
        self.path = beat_path(out, trial.id)
        self.beat = beat
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> Heartbeat:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def update(self, trial: Trial, fraction: float, text: str) -> None:
        """Include the progress in the next heartbeat."""
        self.beat = self.beat.model_copy(update={"fraction": fraction, "text": text})

    def _repeat(self) -> None:
        while not self._over.wait(self.beat.seconds):
            self._write()

    def _write(self) -> None:
        # Atomically, but not forced onto the disk, which may take longer than the next beat. A full disk ends no trial:
        # its record matters, not its heartbeat.
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(exist_ok=True)
            new = self.path.with_name(f".{self.path.name}{TEMPORARY}")
            new.write_text(self.beat.model_dump_json(), encoding="utf-8")
            new.replace(self.path)


def wait_for_silence(out: Path, trial: Trial, job: str) -> None:
    """Wait until no other job writes a heartbeat for this trial.

    A job that was cancelled, or lost and given up, may take a while to end. Clocks of two machines may differ: a
    heartbeat that no longer changes is ignored, whatever its apparent age.

    Raises:
        UserError: the other job's heartbeat does not stop.
    """
    begin = since = time.monotonic()
    stamp: int | None = None
    while (last := read_beat(out, trial.id)) is not None:
        beat, age = last
        now = time.monotonic()
        if beat.job == job or age > beat.patience:
            return
        with contextlib.suppress(OSError):
            seen = beat_path(out, trial.id).stat().st_mtime_ns
            if seen != stamp:
                stamp, since = seen, now
        if now - since > beat.patience:
            return
        if now - begin > 3 * beat.patience:
            raise UserError(f"job {beat.job} already runs {trial.id}")
        time.sleep(min(1.0, beat.seconds))
