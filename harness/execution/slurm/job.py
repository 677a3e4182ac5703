"""The work of a cluster job: run its trials in sequence, each supervised like any other.

    python -m harness.execution.slurm.job FOLDER

The folder is that of a submission, and $SLURM_ARRAY_TASK_ID the index of the job. A job may be started more than once,
as the cluster requeues it when a node fails or a job of higher priority arrives; trials that have left their record are
skipped, and a trial that was training resumes from its checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType

from harness.core.errors import UserError
from harness.execution.data import check_prepared
from harness.execution.local.slots import make_slots
from harness.execution.local.supervisor import run_trials
from harness.execution.progress import Reporter
from harness.execution.provenance import RunProvenance
from harness.execution.slurm.submissions import load

ENDS = (signal.SIGTERM, signal.SIGINT)
"""Signals that a cluster sends before it kills: at a job's time limit, on `scancel`, or on preemption."""

SHARED = "on a node of the cluster: data root and cache must be on a shared disk"


def main(place: Path, index: int) -> None:
    """Run the trials without a record of a job; print why one cannot run, for `status`."""
    for number in ENDS:
        signal.signal(number, _end)
    submission = load(place)
    run_options = submission.run_options
    provenance = RunProvenance(run_options.host)  # collected here: the trials run the source on this node
    provenance.save(run_options.out)
    for trial in submission.jobs[index]:
        if submission.settled(trial, run_options.out) is not None:
            continue
        try:
            check_prepared(trial, run_options.root, SHARED)
            run_trials([trial], run_options, make_slots([trial], 1), Reporter(1, sys.stdout), provenance=provenance.of)
        except UserError as error:  # not caused by the trial: it gets no record, and the next run submits it again
            print(*str(error).split(), flush=True)


def _end(number: int, frame: FrameType | None) -> None:
    """End in order: the trial's processes, then this process."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), int(os.environ["SLURM_ARRAY_TASK_ID"]))
    except UserError as error:
        raise SystemExit(str(error)) from None
