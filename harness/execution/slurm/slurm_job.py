"""The work of a cluster job: run its trials in sequence, each supervised like any other.

submitit starts `run_job` on a node. A job may be started more than once, as the cluster requeues it when a node
fails or a job of higher priority arrives; trials that have left their record are skipped, and a trial that was
training resumes from its checkpoint.
"""

from __future__ import annotations

import os
import platform
import signal
from pathlib import Path
from types import FrameType

from harness.core.errors import DataError, DataMissing, UserError
from harness.core.machine import usable_gpus
from harness.core.records import write_atomically
from harness.core.run_options import RunOptions
from harness.core.trial import Trial
from harness.execution.local.process import Work, execute
from harness.execution.local.supervisor import run_one
from harness.execution.provenance import RunProvenance
from harness.execution.slurm.heartbeat import Heartbeat, wait_for_silence
from harness.execution.slurm.submissions import Beat, Submission, fault_path, is_cancelled

ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)
"""Signals that a cluster sends before it kills: at a job's time limit, on `scancel`, or on preemption."""


def run_job(place: str, index: int, work: Work = execute) -> None:
    """Run the trials of one job that have no record yet.

    Args:
        place: folder of the submission.
        index: index of the job in the array.
        work: see `harness.execution.local.supervisor.run_trials`.
    """
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
            job=job_number(),
            seconds=submission.heartbeat,
            node=platform.node() if run_options.host else None,
        )
        try:
            wait_for_silence(run_options.out, trial, beat.job)
            with Heartbeat(run_options.out, trial, beat) as heartbeat:
                check_prepared(trial, run_options)
                gpus = usable_gpus() if trial.device == "cuda" else ()
                run_one(trial, run_options, heartbeat, gpus=gpus, provenance=provenance.of, work=work)
        except UserError as error:  # not caused by the trial: it gets no record, and the next run submits it again
            print(error, flush=True)
            write_atomically(fault, f"{error}\n".encode())


def check_prepared(trial: Trial, run_options: RunOptions) -> None:
    """Raise if the data differ from those that the submitting run has prepared; nothing is downloaded.

    Raises:
        DataMissing, DataError: the data are missing here, or differ.
    """
    from harness.datasets import Store, find_dataset

    store = Store.at(run_options.root, offline=True)
    for data in trial.data_sets:
        options = dict(data.options)
        try:
            dataset = find_dataset(data.name)
            dataset.check(store, options)
            checksum = dataset.checksum(store, options)
        except (DataMissing, DataError) as error:
            raise type(error)(
                f"{error} (on a node of the cluster: data root and cache must be on a shared disk)"
            ) from error
        if checksum != data.checksum:
            raise DataError(
                f"{data.name}: the data on this node (checksum {checksum}) are not those that the run has prepared "
                f"({data.checksum}); have data root and cache on a shared disk"
            )


def job_number() -> str:
    """Return the name of this job in SLURM: "17_3", or "17" without an array."""
    array, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{index}" if array else os.environ.get("SLURM_JOB_ID", "none")


def _end(number: int, frame: FrameType | None) -> None:
    """End in order: the trial's processes, the heartbeat, and this process."""
    raise SystemExit(128 + number)
