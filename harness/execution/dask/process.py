"""The process of one trial on a Dask worker: check version, source and data, then run the trial as on any machine.

    python -m harness.execution.dask.process FOLDER

The folder is that of `harness.execution.dask.worker.run_trial`. The outcome is written to standard output (see
`harness.execution.dask.returned`). The process ends with its standard input.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import FrameType

from harness.core.errors import DataError, DataMissing, UserError
from harness.core.texts import LONGEST, message_of

HINT = "a worker's data root is its $INVERTBENCH_DATA, or --cluster data=PATH"


def main(folder: Path) -> None:
    """Write the outcome."""
    from harness.execution.dask.worker import failed

    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # others may print
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_end_with_worker, daemon=True).start()
    try:
        content = _run(folder)
    except (UserError, OSError) as error:  # an OSError of this process, such as of a full disk
        text = message_of(error, LONGEST).partition("; make room there")[
            0
        ]  # a worker keeps neither folder nor checkpoints
        content = failed(text, code=3 if isinstance(error, (DataMissing, DataError)) else 2)
    stream.write(content)
    stream.flush()


def _run(folder: Path) -> bytes:
    from harness.execution.dask.job import Job
    from harness.execution.dask.returned import packed
    from harness.execution.data import check_prepared
    from harness.execution.local.process import start_server
    from harness.execution.local.slots import make_slots
    from harness.execution.local.supervisor import run_trials
    from harness.execution.progress import Reporter
    from harness.execution.provenance import RunProvenance
    from harness.planning.settle import resolve_device

    job = Job.load(folder)
    trial = job.trial
    # Both this process and that server import torch, so let them do it side by side.
    start_server({trial.kind}, [data.name for data in trial.data_sets], kernels=trial.uses_kernels)
    variable = os.environ.get("INVERTBENCH_DATA")
    root = job.data or (Path(variable) if variable else job.run_options.root)
    run_options = replace(job.run_options, out=folder / "run", root=root)
    provenance = RunProvenance(run_options.host)  # collected here: the trial runs the source on this machine
    provenance.save(run_options.out)
    job.check_sources(provenance.digests(trial))
    resolve_device(trial.device)
    check_prepared(trial, root, HINT)
    run_trials([trial], run_options, make_slots([trial], 1), Reporter(1, sys.stderr), provenance=provenance.of)
    return packed(trial, run_options.out)


def _end_with_worker() -> None:
    """End in order when the worker closes the standard input of this process, or has ended itself."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _end(number: int, frame: FrameType | None) -> None:
    """End the trial's processes, then this one."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
