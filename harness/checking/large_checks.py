"""The rules of a layer on large events, where its D x D matrix is expensive or impossible to form."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from harness.audit.stochastic_log_det import LogDetEstimate, stochastic_log_det
from harness.checking.layer_case import LayerCase, log_det_tolerance, offset_size, relative_error, tolerance
from harness.checking.layer_checks import gradient_faults
from harness.checking.layer_faults import explain_log_det, shown_apart
from harness.checking.layer_module_checks import mask_faults
from harness.checking.report import Remark
from harness.checking.training_checks import BATCHES, step_faults
from layers import InvertibleLinear
from layers.base import push_identity

LARGE_SHAPES: tuple[tuple[int, ...], ...] = ((2, 512), (48, 4, 4), (3, 32, 32), (3, 64, 64))
"""Shapes in the order of checking: D = 1024, 768, 3072 and 12,288."""

EXACT_LIMIT = 4096  # D up to which the matrix is formed: 0.1 GB and a second
DENSE_LIMIT = 1024  # D up to which dense() is checked
SLOWEST_PASS = 0.5  # limit in seconds for a forward pass of 16 events; a slower layer is not checked on larger events
EVENTS = 16
FEW = 8  # events of which the reference of a training step takes a step at a time
SCALES = (0.1, 0.03, 0.01)
WORST_CONDITION = 1e6
SHARE = 0.1  # in nats per D: the log-det to which the weights are moved, so that a wrong factor is detected


def large_events(case: LayerCase) -> Iterator[str]:
    """Check that log-det, inverse and linearity hold on events of some thousand entries, in any batch."""
    layer, condition = _conditioned(case)
    x = case.events(EVENTS)
    begin = time.perf_counter()
    with torch.no_grad():
        layer(x)
    seconds = time.perf_counter() - begin
    if seconds > SLOWEST_PASS:
        yield Remark(f"not checked: a forward pass of {EVENTS} events takes {seconds:.1f} s")
        return
    offset = offset_size(layer, x[:1], float(layer(x)[0].detach().abs().max()))
    allowed = tolerance(case.dtype, condition, offset)
    yield from _maps(layer, x, allowed)
    yield from _samples(case, layer, allowed)
    if layer.dim <= EXACT_LIMIT:
        yield from _exact(case, layer, allowed)
    else:
        yield from _stochastic(case, layer)
    for dtype in (torch.float64, torch.float32) if case.device == "cpu" else (torch.float64,):
        step = replace(case, dtype=dtype, training=True)
        narrow = step.copy(layer)
        reference = step.copy(narrow).double()
        allowed = tolerance(dtype, condition, offset)
        yield from step_faults(step, narrow, reference, BATCHES[0], allowed, few=FEW)


def _conditioned(case: LayerCase) -> tuple[InvertibleLinear, float]:
    """Return the layer with the most noise on its weights that leaves it well conditioned, its log-det far from 0."""
    for scale in SCALES:
        layer = case.perturbed(scale)
        _raise_log_det(layer, case)
        condition = _estimate(layer, probes=2).condition
        if condition < WORST_CONDITION:
            return layer, condition
    return layer, condition


def _raise_log_det(layer: InvertibleLinear, case: LayerCase) -> None:
    """Move the weights along the gradient of the log-det until it has changed by about a tenth of D nats."""
    log_det = layer(torch.zeros_like(case.events(1)))[1]
    parameters = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    if not log_det.requires_grad or not parameters:
        return
    gradients = torch.autograd.grad(log_det.sum(), parameters, allow_unused=True)
    squared = sum(float(gradient.square().sum()) for gradient in gradients if gradient is not None)
    if not 0 < squared < float("inf"):
        return
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter.add_(gradient, alpha=SHARE * layer.dim / squared)


@torch.no_grad()
def _maps(layer: InvertibleLinear, x: Tensor, tolerance: float) -> Iterator[str]:
    y = layer(x)[0]
    offset = layer(torch.zeros_like(x[:1]))[0]
    one_by_one = torch.cat([layer(event)[0] for event in x.split(1)])
    cases = {
        "inverse(forward(x)) differs from x": (layer.inverse(y), x),
        "forward(inverse(x)) differs from x": (layer(layer.inverse(x))[0], x),
        "f(x[0] - x[1]) differs from f(x[0]) - f(x[1])": (layer(x[:1] - x[1:2])[0] - offset, y[:1] - y[1:2]),
        "forward of events one by one differs from that of a batch": (one_by_one, y),
    }
    for what, (value, expected) in cases.items():
        error = relative_error(value, expected)
        if error > tolerance:
            yield f"{what} by {error:.2g} (relative)"


def _samples(case: LayerCase, layer: InvertibleLinear, allowed: float) -> Iterator[str]:
    """Check gradients, log_det(), dense() and masks, which may depend on the size of an event otherwise."""
    x = case.events(2)
    yield from gradient_faults(layer, x)
    value = _claimed(layer, x)
    error = abs(float(layer.log_det().detach().double().flatten()[0]) - value)
    if not error <= log_det_tolerance(allowed, value, layer.dim):
        yield f"log_det() differs from the log-det of forward by {error:.3g}"
    if layer.dim <= DENSE_LIMIT and type(layer).dense is not InvertibleLinear.dense:
        with torch.no_grad():
            y = layer(x)[0] - layer(torch.zeros_like(x))[0]
            error = relative_error(y.flatten(1), x.flatten(1) @ layer.dense().T)
        if error > allowed:
            yield f"forward(x) differs from dense() @ x + b by {error:.2g} (relative)"
    yield from mask_faults(case.copy(layer), x, allowed)


def _exact(case: LayerCase, layer: InvertibleLinear, tolerance: float) -> Iterator[str]:
    truth = float(torch.linalg.slogdet(push_identity(layer, dtype=case.dtype))[1])
    for batch in (1, EVENTS):
        claimed = _claimed(layer, case.events(batch))
        if not abs(claimed - truth) <= log_det_tolerance(tolerance, truth, layer.dim):
            claim, expected = shown_apart(claimed, truth)
            yield f"log-det is {claim} but slogdet of the map is {expected}{explain_log_det(claimed, truth, layer)}"
            return


def _stochastic(case: LayerCase, layer: InvertibleLinear) -> Iterator[str]:
    estimate, claimed = _estimate(layer), _claimed(layer, case.events(1))
    if estimate.excludes(claimed):
        yield estimate.contradiction(claimed) + explain_log_det(claimed, estimate.value, layer)


def _estimate(layer: InvertibleLinear, **options: int) -> LogDetEstimate:
    return stochastic_log_det(layer, torch.Generator().manual_seed(0), **options)


@torch.no_grad()
def _claimed(layer: InvertibleLinear, x: Tensor) -> float:
    return float(layer(x)[1].double().flatten()[0])
