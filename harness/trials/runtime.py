"""A runtime trial: one sweep point, all layers timed alternately in one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from harness.records import Record, blank_record
from harness.settings import LayerRef, Operation, Progress, RuntimeTrial
from harness.trials.models import make_layer
from harness.trials.operations import backend_of, perturb, prepare
from harness.trials.timing import measure
from layers import UnsupportedShape


def run_runtime(trial: RuntimeTrial, root: Path | None, out: Path, progress: Progress) -> Record:
    """Time each operation of each layer; a row per layer and operation.

    A layer that cannot serve the shape, or fails in its first call, is a row with its own status; the others
    are timed all the same.
    """
    common = {
        "sweep": trial.sweep,
        "shape": "x".join(map(str, trial.shape)),
        "batch": trial.batch,
        "dtype": trial.dtype,
        "device": trial.device,
    }
    record = blank_record(trial, "ok", None)
    if trial.device == "cpu":
        record.notes["peak_bytes"] = "torch counts allocated bytes on CUDA devices only"
    rows = {}
    for ref in trial.layers:
        for operation in trial.operations:
            rows[ref.row, operation] = {"layer": ref.row, "operation": operation, "status": "ok", **common}
    for number, operation in enumerate(trial.operations):
        progress(number / len(trial.operations), f"{operation} at {common['shape']}, batch {trial.batch}")
        cases = {}
        for ref in trial.layers:
            row = rows[ref.row, operation]
            try:
                call = _case(ref, operation, trial, row)  # a fault of the layer shows here, in its own row
            except UnsupportedShape as error:
                row.update(status="unsupported", reason=str(error))
            except (torch.OutOfMemoryError, MemoryError) as error:
                row.update(status="oom", reason=str(error))
            except Exception as error:  # the layer may be anybody's: whatever it raises is its row's result
                row.update(status="error", reason=f"{type(error).__name__}: {error}")
            else:
                cases[ref.row] = call
        for name, result in measure(cases, trial.timing, torch.device(trial.device)).items():
            rows[name, operation].update(
                median_ms=result.median_ms,
                iqr_ms=result.iqr_ms,
                peak_bytes=result.peak_bytes,
                rounds=len(result.samples),
                calls=result.calls,
            )
    record.rows = list(rows.values())
    failed = [row for row in record.rows if row["status"] not in ("ok", "unsupported")]
    if failed:
        record.status = failed[0]["status"]
        record.reason = "; ".join(f"{row['layer']} {row['operation']}: {row['reason']}" for row in failed)
    elif all(row["status"] == "unsupported" for row in record.rows):
        record.status, record.reason = "unsupported", record.rows[0]["reason"]
    progress(1.0, "timed")
    return record


def _case(ref: LayerRef, operation: Operation, trial: RuntimeTrial, row: dict[str, Any]) -> Callable[[], object]:
    layer = make_layer(ref, trial.shape, seed=0)
    perturb(layer, 0.05, torch.Generator().manual_seed(0))
    row["parameters"] = sum(parameter.numel() for parameter in layer.parameters())
    dtype, device = getattr(torch, trial.dtype), torch.device(trial.device)
    call = prepare(layer, trial.batch, operation, dtype=dtype, device=device)
    row["backend"] = backend_of(call, device)
    return call
