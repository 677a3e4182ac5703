"""The rules of a layer on large events, where its D x D matrix is expensive or impossible to form."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from harness.audit.stochastic_log_det import stochastic_log_det
from harness.audit.training_step import derivative_faults, step_faults
from harness.checking.layer_case import MARGIN, LayerCase, offset_size, relative_error, tolerance
from harness.checking.layer_checks import (
    claimed_log_det,
    dense_faults,
    explain_log_det,
    log_det_faults,
    log_det_method_faults,
)
from harness.checking.layer_module_checks import mask_faults
from harness.checking.report import Remark, Unanswered
from harness.checking.training_checks import drawn_sizes
from harness.timing.operations import OperatorWatch
from layers import InvertibleLinear
from layers.base import push_identity

LARGE_SHAPES: tuple[tuple[int, ...], ...] = ((2, 512), (48, 4, 4), (3, 32, 32), (3, 64, 64))
"""Shapes in the order of checking: D = 1024, 768, 3072 and 12,288."""

SMALL = 256  # entries of the largest event on which every rule is checked; the rule of this file takes over above
CHANNELS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)  # of shapes that replace a refused one
EXACT_LIMIT = 4096  # D up to which the matrix is formed: 0.1 GB and a second
DENSE_LIMIT = 1024  # D up to which dense() is checked
FULL_LIMIT = 768  # D up to which every part of the rule is checked on a layer that forms a matrix
MATRIX = 4  # of D * D, the part that has as many entries as a matrix: a triangle is half of it
FEW = 8  # events of which the reference of a training step takes a step at a time
SLOWEST_PASS = 0.5  # processor seconds of a forward pass of 16 events; on larger events there is no answer
EVENTS = 16
MOST_NUMBERS = 1 << 26  # in a batch: half a GB in float64, of which a check holds several
SCALES = (0.1, 0.03, 0.01)
WORST_CONDITION = 1e6
NARROW = 30.0  # allowed error of the inverse in float32, in multiples of condition * eps
SHARE = 0.1  # in nats per D: the log-det to which the weights are moved, so that a wrong factor is detected


def large_events(case: LayerCase) -> Iterator[str]:
    """Check that log-det, inverse and linearity hold on events of some thousand entries, in any batch."""
    seconds = pass_seconds(case) if case.brief else 0.0
    if seconds > SLOWEST_PASS:
        yield Remark(f"not tried: a forward pass of {EVENTS} events takes {seconds:.1f} s")
        return
    layer, condition = _conditioned(case)
    x = case.events(EVENTS)
    with torch.no_grad():
        size = float((layer(x)[0] - layer(torch.zeros_like(x[:1]))[0]).abs().max())
    offset = offset_size(layer, x[:1], size)
    allowed = tolerance(case.dtype, condition, offset)
    yield from _maps(layer, x, allowed)
    if case.device == "cpu":
        yield from _inverse_in_float32(case, layer, condition, offset)
    if case.brief:
        yield from _log_dets(case, layer, allowed)
        return
    yield from _samples(case, layer, allowed)
    sizes = []
    for size in case.batches:
        if size * layer.dim > MOST_NUMBERS:
            yield Unanswered(f"a batch of {size} events has more than {MOST_NUMBERS:,} numbers")
        else:
            sizes.append(size)
            yield from _batch(layer, case.events(size), allowed)
    yield from _log_dets(case, layer, allowed)
    for dtype in (torch.float64, torch.float32) if case.device == "cpu" else (torch.float64,):
        step = replace(case, dtype=dtype, training=True)
        narrow = step.copy(layer)
        reference = step.copy(narrow).double()
        allowed = tolerance(dtype, condition, offset)
        for size in (drawn_sizes(2)[-1], *sizes):
            yield from step_faults(narrow, reference, step.events(size), allowed, few=FEW)


def halved_shapes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the shape with its spatial axes halved once, twice, ..., as long as it has more than `SMALL` entries."""
    shapes = []
    while math.prod(shape := (shape[0], *(size // 2 for size in shape[1:]))) > SMALL:
        shapes.append(shape)
    return shapes


def smaller_shapes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return images, sequences and vectors to try in place of a shape that a layer refuses.

    They have at most as many entries as the shape and more than `SMALL`; those with the most come first, among these
    those of the same number of axes.
    """
    entries = math.prod(shape)
    sides = range(2, math.isqrt(entries) + 1)
    shapes: set[tuple[int, ...]] = {(channels, side, side) for channels in CHANNELS for side in sides}
    shapes |= {(channels, side * side) for channels in CHANNELS for side in sides}
    shapes |= {(side * side, 1) for side in sides} | {(entries, 1)}
    kept = [other for other in shapes if SMALL < math.prod(other) <= entries]
    return sorted(kept, key=lambda other: (-math.prod(other), len(other) != len(shape), other))


def forms_matrix(case: LayerCase) -> bool:
    """Return whether a forward pass of one event forms or reads a tensor that grows like a matrix of D x D entries.

    The time of every pass then grows at least with D * D, and on an event of 12,288 entries the matrix takes 1.2 GB.
    """
    layer = case.initial()
    sizes = [value.numel() for value in (*layer.parameters(), *layer.buffers())]
    with torch.no_grad(), OperatorWatch(lambda operator, inputs, outputs: sizes.extend(map(Tensor.numel, outputs))):
        layer(case.events(1))
    return max(sizes, default=0) >= case.dim**2 / MATRIX


@torch.no_grad()
def pass_seconds(case: LayerCase) -> float:
    """Return the processor time of a forward pass; the second one counts if the first, which may prepare it, is slow.

    Other work on the machine does not affect it. 0 if the layer raises an exception, which the rule reports.
    """
    seconds = 0.0
    with contextlib.suppress(Exception, SystemExit):
        layer, x = case.initial(), case.events(EVENTS)
        for _ in range(2):
            begin = time.process_time()
            layer(x)
            seconds = time.process_time() - begin
            if seconds <= SLOWEST_PASS:
                break
    return seconds


def _conditioned(case: LayerCase) -> tuple[InvertibleLinear, float]:
    """Return the layer with the most noise on its weights that leaves it well conditioned, its log-det far from 0."""
    for scale in SCALES:
        layer = case.perturbed(scale)
        _raise_log_det(layer, case)
        condition = stochastic_log_det(layer, torch.Generator().manual_seed(0), probes=2).condition
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


@torch.no_grad()
def _inverse_in_float32(case: LayerCase, layer: InvertibleLinear, condition: float, offset: float) -> Iterator[str]:
    """Compare the inverse in float32, in which samples are drawn, with that in float64."""
    y = case.events(EVENTS)
    narrow = replace(case, dtype=torch.float32).copy(layer)
    error = relative_error(narrow.inverse(y.float()).double(), layer.inverse(y))
    if error > NARROW / MARGIN * tolerance(torch.float32, condition, offset):
        yield f"inverse in float32 differs from that in float64 by {error:.2g} (relative)"


def _samples(case: LayerCase, layer: InvertibleLinear, allowed: float) -> Iterator[str]:
    """Check gradients, log_det(), dense() and masks, which may depend on the size of an event otherwise."""
    x = case.events(2)
    yield from derivative_faults(layer, x)
    yield from log_det_method_faults(layer, x, allowed)
    if layer.dim <= DENSE_LIMIT and type(layer).dense is not InvertibleLinear.dense:
        yield from dense_faults(layer, layer.dense().detach().double(), x, allowed)
    yield from mask_faults(case.copy(layer), x, allowed)


@torch.no_grad()
def _batch(layer: InvertibleLinear, x: Tensor, tolerance: float) -> Iterator[str]:
    """Compare a batch of the size in use with its parts."""
    parts = x.split(EVENTS)
    for what, function in (("forward", lambda value: layer(value)[0]), ("inverse", layer.inverse)):
        error = relative_error(function(x), torch.cat([function(part) for part in parts]))
        if error > tolerance:
            yield f"{what} of a batch of {len(x)} differs from that of batches of {EVENTS} by {error:.2g} (relative)"


@torch.no_grad()
def _log_dets(case: LayerCase, layer: InvertibleLinear, allowed: float) -> Iterator[str]:
    """Yield the first wrong log-det of batches of several sizes, by the matrix, or by an estimate if it is large."""
    if layer.dim <= EXACT_LIMIT:
        truth, estimate = float(torch.linalg.slogdet(push_identity(layer, dtype=case.dtype))[1]), None
    else:
        estimate = stochastic_log_det(layer, torch.Generator().manual_seed(0))
        truth = estimate.value
    for size in (1, EVENTS, *(size for size in case.batches if size * layer.dim <= MOST_NUMBERS)):
        claimed = claimed_log_det(layer, case.events(size))
        if estimate is None:
            faults = list(log_det_faults(layer, claimed, truth, allowed))
        else:
            contradiction = estimate.contradiction(claimed)
            faults = [contradiction + explain_log_det(claimed, truth, layer)] if contradiction else []
        yield from faults
        if faults:
            return
