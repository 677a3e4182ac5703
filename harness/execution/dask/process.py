"""The process of one trial on a Dask worker: check version, source and data, then run the trial as on any machine.

    python -m harness.execution.dask.process FOLDER

The folder is that of `harness.execution.dask.worker.run_trial`. Progress is written to standard output, a line of JSON
for each message; `fault.json` has the reason why the trial could not run. The process ends with its standard input.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TextIO

from harness.core.errors import UserError
from harness.core.trial import Trial
from harness.execution.progress import Reporter

MESSAGE_PERIOD = 1.0  # seconds between two messages of progress
HINT = "a worker's data root is its $INVERTBENCH_DATA, or --cluster data=PATH"


class Relay(Reporter):
    """Write the progress of the trial to a stream."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(1, stream)
        self._last = 0.0

    def update(self, trial: Trial, fraction: float, text: str) -> None:
        """Write at most one message per period."""
        if time.monotonic() - self._last >= MESSAGE_PERIOD:
            self._last = time.monotonic()
            self.line(json.dumps({"trial": trial.id, "fraction": fraction, "text": text}))

    def finished(self, trial: Trial, record: object) -> None:
        """Write nothing: the record says it."""


def main(folder: Path) -> int:
    """Return 0 if the trial has left its record; 1 if it could not run."""
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # others may print
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_end_with_worker, daemon=True).start()
    try:
        _run(folder, Relay(stream))
    except UserError as error:
        fault = json.dumps({"text": str(error), "code": error.exit_code})
        (folder / "fault.json").write_text(fault, encoding="utf-8")
        return 1
    return 0


def _run(folder: Path, relay: Relay) -> None:
    from harness.execution.dask.job import Job
    from harness.execution.data import check_prepared
    from harness.execution.local.process import start_server
    from harness.execution.local.slots import make_slots
    from harness.execution.local.supervisor import run_trials
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
    run_trials([trial], run_options, make_slots([trial], 1), relay, provenance=provenance.of)


def _end_with_worker() -> None:
    """End in order when the worker closes the standard input of this process, or has ended itself."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _end(number: int, frame: FrameType | None) -> None:
    """End the trial's processes, then this one."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
