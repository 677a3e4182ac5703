"""What a job of a cluster does: its trials, one after the other, each under supervision like any other.

submitit starts `run_job` on a node. A job may be started more than once, as the cluster queues it again when a node
fails or somebody more important comes; trials that have left their record are passed over, and one that was
training goes on from its checkpoint.
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
from harness.core.run_options import Conditions
from harness.core.settings import DensityTrial, Trial
from harness.execution.local.process import Work, execute
from harness.execution.local.supervisor import run_one
from harness.execution.provenance import RunProvenance
from harness.execution.slurm.heartbeat import Heart, wait_for_silence
from harness.execution.slurm.submissions import Beat, Submission, fault_path, is_cancelled

ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)
"""What a cluster sends before it kills: at a job's time limit, on `scancel`, when somebody else is to have the node."""


def run_job(place: str, index: int, work: Work = execute) -> None:
    """Do the trials of one job that have no record yet.

    Args:
        place: folder of the submission.
        index: of the job in the array.
        work: see `harness.execution.local.supervisor.run_trials`.
    """
    for number in ENDS:
        signal.signal(number, _end)
    folder = Path(place)
    submission = Submission.load(folder)
    conditions = submission.conditions
    provenance = RunProvenance(conditions.host)  # asked for here: this is the source that the trials run
    provenance.save(conditions.out)
    for trial in submission.jobs[index]:
        if is_cancelled(folder):
            return
        if submission.settled(trial, conditions.out) is not None:
            continue
        fault = fault_path(folder, trial.id)
        fault.unlink(missing_ok=True)
        beat = Beat(
            submission=submission.name,
            job=job_number(),
            seconds=submission.heartbeat,
            node=platform.node() if conditions.host else None,
        )
        try:
            wait_for_silence(conditions.out, trial, beat.job)
            with Heart(conditions.out, trial, beat) as heart:
                check_prepared(trial, conditions)
                gpus = usable_gpus() if trial.device == "cuda" else ()
                run_one(trial, conditions, heart, gpus=gpus, provenance=provenance.of, work=work)
        except UserError as error:  # not the trial's doing: it gets no record, and the next run submits it again
            print(error, flush=True)
            write_atomically(fault, f"{error}\n".encode())


def check_prepared(trial: Trial, conditions: Conditions) -> None:
    """Make sure that the data are those that the submitting run has prepared; nothing is fetched.

    Raises:
        DataMissing, DataError: they are not here, or are others.
    """
    if not isinstance(trial, DensityTrial):
        return
    from harness.datasets import Store, find_dataset

    store = Store.at(conditions.root, offline=True)
    name = trial.data.name
    try:
        data = find_dataset(name)
        data.check(store, dict(trial.data.options))
        checksum = data.checksum(store, dict(trial.data.options))
    except (DataMissing, DataError) as error:
        raise type(error)(
            f"{error} (on a node of the cluster: data root and cache must lie on a shared disk)"
        ) from error
    if checksum != trial.data.checksum:
        raise DataError(
            f"{name}: the data on this node (checksum {checksum}) are not those that the run has prepared "
            f"({trial.data.checksum}); have data root and cache on a shared disk"
        )


def job_number() -> str:
    """This job as SLURM calls it: "17_3", or "17" for one that is no array."""
    array, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{index}" if array else os.environ.get("SLURM_JOB_ID", "none")


def _end(number: int, frame: FrameType | None) -> None:
    """End in order: the trial's processes, the heartbeat, and this one."""
    raise SystemExit(128 + number)
