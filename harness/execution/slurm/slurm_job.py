"""The work of a cluster job: run its trials in sequence, each supervised like any other.

submitit starts `run_job` on a node. A job may be started more than once, as the cluster requeues it when a node
fails or a job of higher priority arrives; trials that have left their record are skipped, and a trial that was
training resumes from its checkpoint.
"""

from __future__ import annotations

import platform
import signal
from pathlib import Path
from types import FrameType

from harness.core.errors import UserError
from harness.core.records import write_atomically
from harness.execution.data import check_prepared
from harness.execution.local.slots import make_slots
from harness.execution.local.supervisor import run_trials
from harness.execution.provenance import RunProvenance
from harness.execution.slurm.heartbeat import Heartbeat, wait_for_silence
from harness.execution.slurm.submissions import Beat, Submission, fault_path, is_cancelled

ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)
"""Signals that a cluster sends before it kills: at a job's time limit, on `scancel`, or on preemption."""


def run_job(place: str, index: int) -> None:
    """Run the trials without a record of job number `index` of the submission in the folder `place`."""
    from submitit import JobEnvironment  # an optional dependency, which has started this process

    for number in ENDS:
        signal.signal(number, _end)
    folder = Path(place)
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
                check_prepared(trial, run_options.root)
                run_trials([trial], run_options, make_slots([trial], 1), heartbeat, provenance=provenance.of)
        except UserError as error:  # not caused by the trial: it gets no record, and the next run submits it again
            print(error, flush=True)
            write_atomically(fault, f"{error}\n".encode())


def _end(number: int, frame: FrameType | None) -> None:
    """End in order: the trial's processes, the heartbeat, and this process."""
    raise SystemExit(128 + number)
