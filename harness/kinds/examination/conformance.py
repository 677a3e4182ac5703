"""A conformance trial: check one layer by every rule, and its log-det and inverse as a flow uses them."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.audit.findings import LOGDET_LIMIT
from harness.checking.check_layer import check_layer
from harness.checking.layer_case import LayerCase, matrix, relative_error
from harness.checking.report import CheckReport
from harness.core.layer_classes import check_options, resolve_layer
from harness.core.records import Record, blank_record, finite
from harness.core.settings import Progress
from harness.core.texts import error_text
from harness.kinds.examination.trial import ConformanceTrial
from harness.timing.operations import INVERSE_LIMIT
from layers import InvertibleLinear
from layers.adapters import Adapted

STEPS = 100
BATCH = 64
LEARNING_RATE = 1e-2
PACKAGES = re.compile(r"\S*/(site|dist)-packages/")  # the part of a path that differs between machines


def run(
    trial: ConformanceTrial, root: Path | None, out: Path, progress: Progress, checkpoints: object = None
) -> Record:
    """Check one layer; a shape that it cannot serve is an outcome."""
    spec, options = trial.layer.layer, dict(trial.layer.options)
    report = check_layer(spec, options, shapes=(trial.shape,), large=False)
    if trial.shape in report.refused:
        return blank_record(trial, "unsupported", report.refused[trial.shape])
    record = blank_record(trial, "ok", None)
    about = {"layer": trial.layer.row, "dataset": trial.label} | _rules(report)
    progress(0.6, about["failed_rules"] or "every rule is kept")
    if trial.shape not in report.served:
        record.rows = [about | case | {"conforms": False} for case in trial.cases]
        return record
    cls = resolve_layer(spec)
    case = LayerCase(cls, trial.shape, torch.float32, check_options(cls, options), training=False)
    for weights, make in (("random", case.build), ("trained", lambda: trained(case.initial()))):
        layer = make()
        row = about | {"weights": weights, "remark": layer.remark}
        try:
            numbers = measures(layer, case.events(BATCH, seed=2))
        except Exception as error:  # third-party code may raise anything
            record.rows.append(row | {"conforms": False, "finding": about["finding"] or error_text(error)})
            continue
        undone = max(INVERSE_LIMIT, numbers["condition"] * torch.finfo(torch.float32).eps)
        log_det_error = max(numbers["log_det_error"], numbers.get("reverse_log_det_error", 0.0))
        within = log_det_error <= LOGDET_LIMIT and numbers["inverse_error"] <= undone
        conforms = {"conforms": not about["failed_rules"] and within}
        record.rows.append(row | {name: finite(value) for name, value in numbers.items()} | conforms)
    progress(1.0, "conforms" if all(row["conforms"] for row in record.rows) else "has faults")
    return record


def measures(layer: InvertibleLinear, x: Tensor) -> dict[str, float]:
    """Return the log-det in nats, claimed and true, and the largest relative error of both round trips.

    The truth is slogdet, in float64, of the matrix that the layer applies. If the inverse of a library's
    layer returns a log-det, `reverse_log_det_error` is its difference in nats to the truth.
    """
    with torch.no_grad():
        y, claimed = layer(x.clone())
        w = matrix(layer, x.dtype)
        truth = torch.linalg.slogdet(w).logabsdet.item()
        back = relative_error(layer.inverse(y.clone()), x)
        there = relative_error(layer(layer.inverse(x.clone()))[0], x)
        numbers = {
            "log_det": claimed.item(),
            "log_det_true": truth,
            "log_det_error": abs(claimed.item() - truth),
            "inverse_error": max(back, there),
            "condition": torch.linalg.cond(w).item(),
        }
        reverse = layer.inverse_log_det(y.clone()) if isinstance(layer, Adapted) else None
        if reverse is not None:
            numbers["reverse_log_det_error"] = abs(reverse.item() + truth)
    return numbers


def trained(layer: InvertibleLinear, steps: int = STEPS) -> InvertibleLinear:
    """Fit the layer to correlated normal events by Adam, with the log-det that it claims; return it in eval()."""
    parameters = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    if not parameters:
        return layer
    generator = torch.Generator().manual_seed(0)
    mixing = torch.eye(layer.dim) + torch.randn(layer.dim, layer.dim, generator=generator) / math.sqrt(layer.dim)
    optimiser = torch.optim.Adam(parameters, lr=LEARNING_RATE)
    layer.train()
    for _ in range(steps):
        x = (torch.randn(BATCH, layer.dim, generator=generator) @ mixing).reshape(BATCH, *layer.shape)
        y, log_det = layer(x)
        loss = (y.flatten(1).square().sum(1).mean() / 2 - log_det) / layer.dim
        optimiser.zero_grad()
        if loss.requires_grad:
            loss.backward()
        optimiser.step()
    return layer.eval()


def _rules(report: CheckReport) -> dict[str, Any]:
    """Return the outcome of check-layer with one fault: in float32 if possible, an overwritten input first."""
    faults = sorted(report.faults, key=lambda fault: ("float32" not in fault.place, fault.check != "unchanged-state"))
    return {
        "rules": len(report.rules),
        "failed_rules": ", ".join(dict.fromkeys(fault.check for fault in report.faults)) or None,
        "finding": f"{faults[0].check}: {PACKAGES.sub('', faults[0].message)}" if faults else None,
    }
