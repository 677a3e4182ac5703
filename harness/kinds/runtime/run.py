"""A runtime trial: one sweep point, all layers timed alternately in one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.core.records import Record, blank_record, finite
from harness.core.settings import LayerRef, Operation, Progress
from harness.core.texts import error_text, message_of
from harness.kinds.runtime.trial import RuntimeTrial
from harness.pipeline.models import make_layer
from harness.timing.operations import backend_of, events, inverse_error, perturb, prepare
from harness.timing.peak_memory import peak_bytes
from harness.timing.timing import Measurement, measure
from layers import UnsupportedShape, count_entries

Cases = dict[str | None, Callable[[], object]]
"""The calls that are timed alternately: those of the rows, and under None a copy of the point's tensor."""


def run(trial: RuntimeTrial, root: Path | None, out: Path, progress: Progress, checkpoints: object = None) -> Record:
    """Time each operation of each layer; a row per layer and operation.

    A copy of the point's tensor is timed among the layers, to say what moving the data alone takes. A layer that
    cannot serve the shape, or fails in its first call, is a row with its own status; the others are timed all the
    same.
    """
    common = {
        "sweep": trial.sweep,
        "shape": "x".join(map(str, trial.shape)),
        "batch": trial.batch,
        "process": trial.process,
        "dtype": trial.dtype,
        "device": trial.device,
    }
    record = blank_record(trial, "ok", None)
    rows = {}
    for ref in trial.layers:
        for operation in trial.operations:
            rows[ref.row, operation] = {"layer": ref.row, "operation": operation, "status": "ok", **common}
    device = torch.device(trial.device)
    x = events(trial.shape, trial.batch, dtype=getattr(torch, trial.dtype), device=device)
    for number, operation in enumerate(trial.operations):
        progress(number / len(trial.operations), f"{operation} at {common['shape']}, batch {trial.batch}")
        cases: Cases = {}
        for ref in trial.layers:
            row = rows[ref.row, operation]
            try:
                call = _case(ref, operation, x, row)  # a fault of the layer shows here, in its own row
            except UnsupportedShape as error:
                row.update(status="unsupported", reason=message_of(error))
            except (torch.OutOfMemoryError, MemoryError) as error:
                row.update(status="oom", reason=message_of(error))
            except Exception as error:  # third-party code may raise anything: it is the result of its row
                row.update(status="error", reason=error_text(error))
            else:
                cases[ref.row] = call
                row["peak_bytes"] = peak_bytes(call, device)
        if cases:
            results = measure({**cases, None: x.clone}, trial.timing, device)
            copy = results.pop(None)
            for name, result in results.items():
                rows[str(name), operation].update(_measures(result), copy_ms=copy.median_ms)
    record.rows = list(rows.values())
    if any(row.get("inverse_error", 0.0) is None for row in record.rows):
        record.notes["inverse_error"] = "not a number: what the inverse returned is not finite"
    failed = [row for row in record.rows if row["status"] not in ("ok", "unsupported")]
    if failed:
        record.status = failed[0]["status"]
        record.reason = "; ".join(f"{row['layer']} {row['operation']}: {row['reason']}" for row in failed)
    elif all(row["status"] == "unsupported" for row in record.rows):
        record.status, record.reason = "unsupported", record.rows[0]["reason"]
    progress(1.0, "timed")
    return record


def _case(ref: LayerRef, operation: Operation, x: Tensor, row: dict[str, Any]) -> Callable[[], object]:
    """Return the call to be timed, on the events x; facts that need no clock go into the row."""
    layer = make_layer(ref, tuple(x.shape[1:]), seed=0)
    perturb(layer, 0.05, torch.Generator().manual_seed(0))
    row["parameters"] = count_entries(layer.parameters())
    if layer.remark is not None:
        row["remark"] = layer.remark
    call = prepare(layer, len(x), operation, dtype=x.dtype, device=x.device)
    row["backend"] = backend_of(call, x.device)
    if operation in ("inverse", "inverse_warm"):
        row["inverse_error"] = finite(inverse_error(torch.as_tensor(call()), x))
    return call


def _measures(result: Measurement) -> dict[str, Any]:
    names = ("median_ms", "iqr_ms", "drift", "cpu_share", "page_faults", "calls")
    return {name: getattr(result, name) for name in names} | {"rounds": len(result.samples)}
