"""A runtime trial: one sweep point, all layers timed alternately in one process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.core.global_settings import GlobalSettings
from harness.core.records import Record, blank_record, finite
from harness.core.settings import LayerRef, Progress
from harness.core.texts import bounded, error_text, message_of
from harness.kinds.runtime.trial import RuntimeTrial
from harness.pipeline.models import make_layer
from harness.timing.operations import (
    INVERSE_LIMIT,
    OperationCase,
    backend_of,
    events,
    inverse_error,
    perturb,
    prepare,
    remembered,
)
from harness.timing.peak_memory import bytes_outside_torch, is_notable, peak_bytes
from harness.timing.settings import Operation
from harness.timing.timing import measure
from layers import InvertibleLinear, UnsupportedShape, count_entries

TIMES = ("median_ms", "iqr_ms", "drift", "cpu_share", "page_faults", "calls", "rounds")
"""The measures of the clock."""


def run(trial: RuntimeTrial, root: Path | None, out: Path, progress: Progress, checkpoints: object = None) -> Record:
    """Time each operation of each layer; a row per layer and operation.

    A layer that cannot serve the shape, fails in its first call, does not invert, or returns a kept result, is a row
    with that status; the others are timed all the same. All rows of a layer that changes global settings are errors,
    and the settings are restored after each of its calls.
    """
    common = trial.fields | {"device": trial.device}
    record = blank_record(trial, "ok", None)
    rows = {(case["layer"], case["operation"]): case | {"status": "ok"} | common for case in trial.cases}
    device = torch.device(trial.device)
    x = events(trial.shape, trial.batch, dtype=getattr(torch, trial.dtype), device=device)
    settings, guilty = GlobalSettings(), dict[str, dict[str, Any]]()
    for number, operation in enumerate(trial.operations):
        progress(number / len(trial.operations), f"{operation} at {common['shape']}, batch {trial.batch}")
        cases: dict[str, OperationCase] = {}
        for ref in trial.layers:
            row = rows[ref.row, operation]
            try:
                cases[ref.row] = _case(ref, operation, x, row)
            except Exception as error:  # third-party code may raise anything: it is the result of its row
                row.update(_failure(error))
            if changes := settings.restore():
                guilty.setdefault(ref.row, _changed(changes))
        for name in guilty:
            cases.pop(name, None)
        for name, result in (measure(cases, trial.timing, device) if cases else {}).items():
            times = {measure: getattr(result, measure) for measure in TIMES if measure != "rounds"}
            rows[name, operation].update(times, rounds=len(result.samples))
            if result.changes:
                guilty.setdefault(name, _changed(result.changes))
        for ref in trial.layers:
            if ref.row in cases:
                rows[ref.row, operation].update(_kept(ref, cases.pop(ref.row)))
                settings.restore()
    for (name, _), row in rows.items():
        row.update(guilty.get(name, {}))
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


def _layer(ref: LayerRef, shape: tuple[int, ...]) -> InvertibleLinear:
    layer = make_layer(ref, shape, seed=0)
    perturb(layer, 0.05, torch.Generator().manual_seed(0))
    return layer


def _case(ref: LayerRef, operation: Operation, x: Tensor, row: dict[str, Any]) -> OperationCase:
    """Return the operation to be timed, on the events x; facts that need no clock go into the row."""
    layer = _layer(ref, tuple(x.shape[1:]))
    row["parameters"] = count_entries(layer.parameters())
    if layer.remark is not None:
        row["remark"] = layer.remark
    case = prepare(layer, len(x), operation, dtype=x.dtype, device=x.device)
    row["backend"] = backend_of(case, x.device)
    if operation in ("inverse", "inverse_warm"):
        error = inverse_error(torch.as_tensor(case()), x)
        row["inverse_error"] = finite(error)
        if error > INVERSE_LIMIT:
            raise ValueError(f"inverse(forward(x)) differs from x by {error:.2g}, more than {INVERSE_LIMIT:g}")

    def renewed() -> object:
        case.rewrite()
        return case()

    row["peak_bytes"] = peak_bytes(renewed, x.device)
    if is_notable(outside := bytes_outside_torch(renewed), x):
        row["outside_bytes"] = outside
    return case


def _kept(ref: LayerRef, case: OperationCase) -> dict[str, Any]:
    """Return the entries of a row whose operation returns kept results, or fails on new values; else none."""
    try:
        fault = remembered(case, _layer(ref, case.layer.shape))
    except Exception as error:  # as in the first call
        return _failure(error)
    return {} if fault is None else _failed("error", fault)


def _failure(error: Exception) -> dict[str, Any]:
    """Return the entries of a row whose layer has raised."""
    if isinstance(error, UnsupportedShape):
        return _failed("unsupported", message_of(error))
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return _failed("oom", message_of(error))
    return _failed("error", error_text(error))


def _failed(status: str, reason: str) -> dict[str, Any]:
    """Return the entries of a row without a result: times measured before the fault are no times of the layer."""
    return dict.fromkeys(TIMES, None) | {"status": status, "reason": reason}


def _changed(changes: Iterable[str]) -> dict[str, Any]:
    text = f"changes global settings, which other layers share: {'; '.join(changes)}"
    return _failed("error", bounded(text))
