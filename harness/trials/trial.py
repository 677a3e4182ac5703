"""What the process of one trial does: set up, run, and leave a record whatever happens."""

from __future__ import annotations

import ctypes
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from harness.errors import Diverged
from harness.records import Record, Status, blank_record, write_record
from harness.settings import DensityTrial, ParametersTrial, Progress, RuntimeTrial, Trial
from harness.trials.density import run_density
from harness.trials.environment import PROJECT, environment
from harness.trials.parameters import run_parameters
from harness.trials.runtime import run_runtime
from layers import UnsupportedShape, kernels

Run = Callable[[Any, Path | None, Path, Progress], Record]

TRACEBACK_LINES = 40
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's <malloc.h>
# What torch and CUDA libraries say, in a plain RuntimeError, when an allocation fails.
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")


def dispatch(trial: Trial, root: Path | None, out: Path, progress: Progress) -> Record:
    """Run a trial by its kind."""
    match trial:
        case DensityTrial():
            return run_density(trial, root, out, progress)
        case RuntimeTrial():
            return run_runtime(trial, root, out, progress)
        case ParametersTrial():
            return run_parameters(trial, root, out, progress)
    raise TypeError(f"no way to run a {type(trial).__name__}")


def execute(trial: Trial, root: Path | None, out: Path, progress: Progress, run: Run = dispatch) -> Record:
    """Run one trial and write its record to `out/records`; an exception becomes the record's status.

    Args:
        trial: what to do.
        root: folder of the data sets that are not installed with a package, or None.
        out: the suite's folder.
        progress: told how far the trial is.
        run: does the work; by default `dispatch`.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    begin = time.perf_counter()
    configure(trial)
    surroundings: dict[str, Any] = {}
    try:
        surroundings = environment(trial.device)  # before the trial: a device that it crashes answers no question
        record = run(trial, root, out, progress)
    except (Exception, SystemExit) as error:  # a layer may be anybody's code: whatever it raises is its result
        record = failure(trial, error)
    provenance: dict[str, Any] = {
        "started": started,
        "environment": surroundings,
        "seconds": time.perf_counter() - begin,
    }
    record = replace(record, **provenance)
    try:
        write_record(out / "records", record)
    except (ValueError, TypeError) as error:
        unwritable = failure(trial, ValueError(f"the trial's record cannot be stored as JSON: {error}"))
        record = replace(unwritable, **provenance)
        write_record(out / "records", record)
    return record


def configure(trial: Trial) -> None:
    """Set the threads and the numerical flags of this process; they are the same for every layer.

    Full float32 everywhere (no TF32) and no auto-tuned convolutions. Density trials use deterministic
    algorithms where there are any, with a warning where there are none; runtime trials take the kernels that
    users get. The layers' kernels are loaded, and built if need be, before anything is timed.
    """
    torch.set_num_threads(trial.threads)
    if trial.uses_kernels:
        kernels.load(trial.device)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    if isinstance(trial, DensityTrial):
        # Not use_deterministic_algorithms, which imports a compiler that no trial needs.
        torch.set_deterministic_debug_mode("warn")
    if not isinstance(trial, ParametersTrial):
        keep_freed_memory()


def keep_freed_memory() -> bool:
    """Let the C allocator keep what is freed, so that the next step reuses it; whether the allocator can.

    glibc returns large blocks to the system and faults every page in again, which large training steps feel
    (docs/throughput.md), and which makes the time of one call depend on what the process allocated before it
    (docs/timing.md). The price is memory, up to twice the peak.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    no_separate_blocks = mallopt(M_MMAP_MAX, 0)
    never_trim = mallopt(M_TRIM_THRESHOLD, -1)
    return bool(no_separate_blocks and never_trim)


def failure(trial: Trial, error: BaseException) -> Record:
    """The record of a trial that raised, with the end of its traceback in the notes."""
    status = _status(error)
    reason = str(error) if status in ("diverged", "unsupported") else f"{type(error).__name__}: {error}"
    place = _location(error)
    if status == "error" and place:
        reason += f" ({place})"
    record = blank_record(trial, status, reason)
    lines = "".join(traceback.format_exception(error)).splitlines()
    record.notes["traceback"] = "\n".join(lines[-TRACEBACK_LINES:])
    return record


def _status(error: BaseException) -> Status:
    if isinstance(error, Diverged):
        return "diverged"
    if isinstance(error, UnsupportedShape):
        return "unsupported"
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "oom"
    if isinstance(error, RuntimeError) and any(mark in str(error) for mark in OUT_OF_MEMORY):
        return "oom"
    return "error"


def _location(error: BaseException) -> str | None:
    """`file:line` of the last frame that belongs to this project or to a layer file, not to a library."""
    libraries = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    packages = [PROJECT / name for name in ("layers", "flows", "harness")]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if any(path.is_relative_to(package) for package in packages):
            return f"{path.relative_to(PROJECT)}:{frame.lineno}"
        if path.is_file() and not any(path.is_relative_to(library) for library in libraries):
            return f"{path.name}:{frame.lineno}"
    return None
