"""A trial on another machine than the command's: the process that runs it there, as `executors/local.py` does here."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TextIO

from harness.core.errors import DataError, DataMissing
from harness.core.run_options import RunOptions
from harness.core.trial import Trial
from harness.execution.data import check_data
from harness.execution.local.slots import make_slots
from harness.execution.local.supervisor import run_trials
from harness.execution.outcome import RunProvenance
from harness.execution.progress import Reporter


def run_trial(trial: Trial, run_options: RunOptions, provenance: RunProvenance, hint: str, stream: TextIO) -> None:
    """Run a trial under a supervisor in this process; raise a UserError if it cannot run here, so has no record.

    `provenance` is that of this machine, whose source the trial runs, and `hint` says where it looks for data.
    """
    check_prepared(trial, run_options.root, hint)
    run_trials([trial], run_options, make_slots([trial], 1), Reporter(1, stream), provenance=provenance.of)


def check_prepared(trial: Trial, root: Path | None, hint: str) -> None:
    """Raise DataMissing or DataError if data here are missing, or differ from those that the command has prepared."""
    try:
        checksums = check_data(trial.data_sets, root, offline=True)
    except DataMissing as error:
        raise DataMissing(f"{error} ({hint})") from error
    for data in trial.data_sets:
        if (checksum := checksums[data.arrays]) != data.checksum:
            raise DataError(
                f"{data.name}: the data have checksum {checksum}, and the run has prepared {data.checksum} ({hint})"
            )


def end_in_order() -> None:
    """Let SIGTERM and SIGINT end the trial's processes, then this one.

    A cluster sends them before it kills: at a job's time limit, on a cancellation, or on preemption.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
