"""A conformance trial: check one layer by every rule, and its log-det and inverse as a flow uses them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.audit.findings import INVERSE_LIMIT, LOGDET_LIMIT
from harness.checking.check_layer import check_layer, construct
from harness.checking.layer_case import LayerCase, matrix, relative_error
from harness.checking.report import CONSTRUCTION
from harness.core.layer_classes import check_options, resolve_layer
from harness.core.records import Record, blank_record, finite
from harness.core.settings import Progress
from harness.core.texts import error_text
from harness.kinds.conformance.trial import ConformanceTrial, Weights
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
    cls = resolve_layer(trial.layer.layer)
    options = check_options(cls, dict(trial.layer.options))
    refusal, faults = construct(cls, trial.shape, options)
    if refusal is not None:
        return blank_record(trial, "unsupported", refusal)
    record = blank_record(trial, "ok", None)
    if faults:
        finding = _finding(CONSTRUCTION, faults[0])
        about = {"layer": trial.layer.row, "dataset": trial.label, "conforms": False}
        record.rows = [about | case | {"failed_rules": CONSTRUCTION, "finding": finding} for case in trial.cases]
        return record
    case = LayerCase(cls, trial.shape, torch.float32, options, training=False)
    rules = _rules(trial)
    progress(0.6, rules["failed_rules"] or "every rule is kept")
    for weights, layer in _layers(case):
        about = {"layer": trial.layer.row, "dataset": trial.label, "weights": weights, "remark": layer.remark}
        try:
            found = measures(layer, case.events(BATCH, seed=2))
        except Exception as error:  # third-party code may raise anything
            raised = {"conforms": False, "finding": rules["finding"] or error_text(error)}
            record.rows.append(about | rules | raised)
            continue
        conforms = not rules["failed_rules"] and _within_limits(found)
        numbers = {name: finite(value) for name, value in found.items()}
        record.rows.append(about | rules | numbers | {"conforms": conforms})
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
        found = {
            "log_det": claimed.item(),
            "log_det_true": truth,
            "log_det_error": abs(claimed.item() - truth),
            "inverse_error": max(back, there),
            "condition": torch.linalg.cond(w).item(),
        }
        reverse = layer.inverse_log_det(y.clone()) if isinstance(layer, Adapted) else None
        if reverse is not None:
            found["reverse_log_det_error"] = abs(reverse.item() + truth)
    return found


def train(layer: InvertibleLinear, steps: int = STEPS) -> None:
    """Fit the layer to correlated normal events by Adam, with the log-det that it claims, as a flow does."""
    parameters = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    if not parameters:
        return
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
    layer.eval()


def _layers(case: LayerCase) -> Iterator[tuple[Weights, InvertibleLinear]]:
    """Yield the layer with each kind of weights, in eval()."""
    yield "random", case.build()
    layer = case.initial()
    train(layer)
    yield "trained", layer


def _rules(trial: ConformanceTrial) -> dict[str, Any]:
    """Return the outcome of check-layer on the trial's shape, with the first fault, if possible in float32.

    An input that is overwritten comes before its consequences.
    """
    report = check_layer(trial.layer.layer, dict(trial.layer.options), shapes=(trial.shape,), large=False)
    failed = dict.fromkeys(finding.check for finding in report.faults)
    faults = sorted(report.faults, key=lambda fault: ("float32" not in fault.place, fault.check != "unchanged-state"))
    return {
        "rules": len(report.rules),
        "failed_rules": ", ".join(failed) or None,
        "finding": _finding(faults[0].check, faults[0].message) if faults else None,
    }


def _finding(rule: str, message: str) -> str:
    return f"{rule}: {PACKAGES.sub('', message)}"


def _within_limits(found: dict[str, float]) -> bool:
    """Return whether the errors are within the limits of the audit of a flow."""
    undone = max(INVERSE_LIMIT, found["condition"] * torch.finfo(torch.float32).eps)
    reverse = found.get("reverse_log_det_error", 0.0)
    return max(found["log_det_error"], reverse) <= LOGDET_LIMIT and found["inverse_error"] <= undone
