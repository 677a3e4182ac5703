"""The work of one trial's process: set up, run, and always leave a record."""

from __future__ import annotations

import contextlib
import sysconfig
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from harness.core.errors import Diverged, UserError
from harness.core.files import Unwritten
from harness.core.flags import configure
from harness.core.provenance.environment import environment
from harness.core.records import Record, Status, blank_record, remove_old_arrays, write_record
from harness.core.run_options import PROJECT, RunOptions
from harness.core.settings import Progress
from harness.core.texts import LONGEST, LONGEST_LOGGED, bounded, error_text, message_of
from harness.core.third_party import source_digest
from harness.core.trial import Trial
from harness.execution.gate import refused, with_checks, without_refused
from harness.training.checkpoints import Checkpoints
from layers import UnsupportedShape

Run = Callable[[Any, Path | None, Path, Progress, Checkpoints], Record]

TRACEBACK_LINES = 40
# Messages of torch and CUDA libraries, in a plain RuntimeError, when an allocation fails.
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED", "std::bad_alloc")
SETTLED = ("ok", "unsupported", "diverged")  # training again from a checkpoint would give the same result


def execute(
    trial: Trial,
    run_options: RunOptions,
    provenance: Mapping[str, Any],
    progress: Progress,
    run: Run | None = None,
) -> Record:
    """Run one trial, by `run` or its kind, and write its record to `out/records`; an exception becomes its status.

    The log of the trial gets the traceback.

    Raises:
        Unwritten: a file of the trial could not be written; it leaves no record.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    begin = time.perf_counter()
    configure(trial, run_options.memory)
    surroundings: dict[str, Any] = {}
    checkpoints = Checkpoints(trial, trial.steps, run_options, provenance.get("sources", {}))
    try:
        check_third_party_files(trial)
        surroundings = environment(trial.device)  # before the trial: a crashed device answers no queries
        run = run or import_module(trial.run_path()).run
        chosen, checks = without_refused(trial, run_options.checks), run_options.checks
        record = refused(trial, checks) or with_checks(
            run(chosen, run_options.root, run_options.out, progress, checkpoints), trial, checks
        )
    except BaseException as error:  # third-party code may raise anything: that is its result
        if isinstance(error, Unwritten):
            raise
        record = failure(trial, error)
    facts: dict[str, Any] = {
        "started": started,
        "environment": surroundings | dict(provenance) | {"sources": checkpoints.sources},
        "seconds": checkpoints.seconds + time.perf_counter() - begin,
    }
    record = replace(record, **facts, notes=record.notes | checkpoints.notes)
    try:
        write_record(run_options.out / "records", record)
    except (ValueError, TypeError) as error:
        record = replace(failure(trial, ValueError(f"the trial's record cannot be stored: {error}")), **facts)
        write_record(run_options.out / "records", record)
    if record.arrays is not None:
        remove_old_arrays(run_options.out / "records", record)
    if record.status in SETTLED:
        checkpoints.remove()
    return record


def check_third_party_files(trial: Trial) -> None:
    """Raise UserError if a FILE.py:CLASS, or what it imports, has changed since the trial was planned."""
    named = [(layer.layer, layer.source) for layer in trial.layers_under_test]
    named += [(data.name, data.source) for data in trial.data_sets]
    for spec, source in named:
        file = Path(spec.rpartition(":")[0])
        if source is not None and source != source_digest(file.resolve()):
            raise UserError(
                f"{file.name} has changed since the run was planned, or a file that it imports has; give the same "
                "command again"
            )


def failure(trial: Trial, error: BaseException) -> Record:
    """Return the record of a trial that raised, with the end of its traceback in the notes."""
    status, place = _status(error), _location(error)
    reason = message_of(error) if status in ("diverged", "unsupported") else error_text(error)
    if status == "error" and place:
        reason = f"{error_text(error, LONGEST - len(place) - 100)} ({place})"
    record = blank_record(trial, status, reason)
    text = "".join(traceback.format_exception(error))
    with contextlib.suppress(Exception):  # third-party code may have closed or replaced the stream
        print(bounded(text, LONGEST_LOGGED), flush=True)
    lines = text[-LONGEST_LOGGED:].splitlines()[-TRACEBACK_LINES:]
    record.notes["traceback"] = "\n".join(bounded(line, 500) for line in lines)
    return record


def _status(error: BaseException) -> Status:
    if isinstance(error, Diverged):
        return "diverged"
    if isinstance(error, UnsupportedShape):
        return "unsupported"
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "oom"
    if isinstance(error, RuntimeError) and any(mark in message_of(error) for mark in OUT_OF_MEMORY):
        return "oom"
    return "error"


def _location(error: BaseException) -> str | None:
    """Return `file:line` of the last frame that belongs to this project or to a layer file, not to a library."""
    libraries = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    packages = [PROJECT / name for name in ("layers", "flows", "harness")]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if any(path.is_relative_to(package) for package in packages):
            return f"{path.relative_to(PROJECT)}:{frame.lineno}"
        if path.is_file() and not any(path.is_relative_to(library) for library in libraries):
            return f"{path.name}:{frame.lineno}"
    return None
