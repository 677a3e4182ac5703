"""The rules of a layer in training: a step on whole batches, and many updates as training makes them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Adam

from harness.audit.module_state import OptimiserTwin, moved, used
from harness.audit.training_step import (
    STEP_MARGIN,
    compare_step,
    differences,
    linearity_faults,
    reference_step,
    step_faults,
    step_weights,
    take_step,
)
from harness.checking.layer_case import MARGIN, LayerCase
from harness.checking.layer_checks import Check, differing, every_result
from harness.evaluation.evaluation import state_of
from harness.training.updates import flattened
from layers import InvertibleLinear

SIZES = ((2, 16), (17, 64), (65, 150), (151, 400))  # least and most events of the batches, drawn anew in each check
SMALL = 32  # D up to which the larger two are drawn too, in float32, as in training
BATCH = 33  # events of an update
FEW = 3
ROUNDING = 3.0  # of gradients, in multiples of condition * eps
UPDATES = 80
FOLLOWED = 16  # D up to which the gradients of every update are compared
VALIDATED = 20  # updates between two validations
RATE = 1e-3


def training_step(case: LayerCase) -> Iterator[str]:
    """Check a step: its results and gradients against float64 with few events, and that it moves nothing itself."""
    if not case.training:
        return
    layer = case.build()
    reference = case.copy(layer).double()
    small = case.dim <= SMALL and case.dtype == torch.float32
    sizes = drawn_sizes(len(SIZES) if small else 2)
    sizes += [size for size in case.batches if small and size <= SIZES[-1][1]]
    for size in sizes:
        x = case.events(size)
        faults = list(step_faults(layer, reference, x, case.tolerance(), threads=2 if size == sizes[-1] else 1))
        if case.trains:
            faults += linearity_faults(layer, x, step_weights(x), ROUNDING / MARGIN * case.tolerance())
        yield from faults
        if faults:
            return


def drawn_sizes(number: int) -> list[int]:
    """Draw a size of a batch from each of the first ranges of `SIZES`, which no layer can know in advance."""
    draw = random.SystemRandom()
    return [round(math.exp(draw.uniform(math.log(least), math.log(most)))) for least, most in SIZES[:number]]


def weights_kept(case: LayerCase) -> Iterator[str]:
    """Check that parameters and gradients keep their objects and their memory, and stay trained or frozen as built.

    An optimiser holds the parameters that it received. It does not follow one that is replaced, and what shares its
    memory, such as a flattened or a fused optimiser, does not follow one whose ``.data`` is.
    """
    if not case.training:
        return
    layer = replace(case, initialised=False).initial()
    x = case.events(FEW)
    for parameter in layer.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
    steps: dict[str, Callable[[], object]] = {
        "initialise": torch.no_grad()(lambda: layer.initialise(case.first_batch())),
        "a training step": lambda: take_step(layer, x, step_weights(x)),
        "eval()": layer.eval,
        "a call in eval()": lambda: every_result(layer, x),
        "train()": layer.train,
        "another training step": lambda: take_step(layer, x, step_weights(x)),
    }
    before = _places(layer)
    for what, step in steps.items():
        step()
        after = _places(layer)
        for name in sorted(before.keys() | after.keys()):
            fault = _change(repr(name), before.get(name), after.get(name), memory=what != "initialise")
            if fault:
                yield f"{what} {fault}"
        before = after


class _WeightState(NamedTuple):
    parameter: nn.Parameter
    memory: int
    trained: bool
    gradient: Tensor | None


def _places(layer: nn.Module) -> dict[str, _WeightState]:
    return {
        name: _WeightState(weight, weight.data_ptr(), weight.requires_grad, weight.grad)
        for name, weight in layer.named_parameters()
    }


def _change(name: str, before: _WeightState | None, after: _WeightState | None, memory: bool) -> str:
    """Return how a parameter has changed, its name included; empty if it has not."""
    if before is None or after is None or after.parameter is not before.parameter:
        return f"replaces {name}, so the optimiser trains a parameter that is not in use: change it in place"
    if after.trained != before.trained:
        verb = "thaws" if after.trained else "freezes"
        return f"{verb} {name}, after parameters are counted: set requires_grad in __init__"
    if memory and after.memory != before.memory:
        return (
            f"gives {name} other memory, as an assignment to .data does: change it in place, as in "
            "`with torch.no_grad(): weight.clamp_(-3, 3)`"
        )
    if memory and before.gradient is not None and after.gradient is not before.gradient:
        return f"replaces or removes the gradient of {name}: leave gradients to the optimiser"
    return ""


def updates(case: LayerCase) -> Iterator[str]:
    """Check many updates of a small layer: only Adam moves the weights, and no result or gradient is of earlier ones.

    Adam is fused and the weights are views of one tensor, as in training: neither raises the weights' `_version`. On a
    CPU they are float32, as there.
    """
    if not case.training or case.dim > SMALL or not case.trains:
        return
    layer, x = case.build(), case.events(BATCH)
    trained = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    if not trained:
        return
    joined = flattened(trained)
    optimiser = Adam([each.tensor for each in joined], lr=RATE, fused=True)
    twin = OptimiserTwin(optimiser)
    every_result(layer, x)
    before = _not_trained(layer)
    for number in range(1, UPDATES + 1):
        for each in joined:
            each.zero_grad()
        others = [case.copy(layer)] if case.dim <= FOLLOWED else []
        for module in (*others, layer):
            y, log_det = module(x * 1.0)
            ((0.5 * y.square().sum() / len(x) - log_det.mean()) / layer.dim).backward()
        faults = [fault for unused in others for fault in _gradient_faults(case, layer, unused, number)]
        if faults:
            yield from faults
            return
        for each in joined:
            each.collect()
        optimiser.step()
        if not twin.agrees():
            yield f"after update {number} the weights are not what Adam computes from their gradients: they move alone"
            return
        if number % VALIDATED == 0:
            every_result(layer.eval(), x)
            layer.train()
    for name in used(layer, moved(before, _not_trained(layer)), x):
        yield f"{name!r} moves during {UPDATES} updates without the optimiser"
    yield from _compare_fresh(case, layer, x)


def _gradient_faults(case: LayerCase, layer: nn.Module, unused: nn.Module, number: int) -> Iterator[str]:
    """Yield each gradient of a layer in update `number` that is not that of an equal one in its first call."""
    truth = dict(unused.named_parameters())
    tolerance, other = STEP_MARGIN * case.tolerance(), "that of a new layer"
    for name, weight in layer.named_parameters():
        expected = truth[name].grad
        if expected is not None:
            # Of a matrix that stays orthogonal, the gradient of the loss, which is about 1, is rounding alone.
            what = f"the gradient by {name!r} in update {number}"
            yield from differences(what, weight.grad, expected.double(), tolerance, tolerance, other=other)


def _compare_fresh(case: LayerCase, layer: InvertibleLinear, x: Tensor) -> Iterator[str]:
    """Compare a trained layer with a new one of the same weights: every result, and a training step."""
    fresh = case.copy(layer)
    for what, error in differing(every_result(fresh.eval(), x), every_result(layer.eval(), x), case.tolerance()):
        yield (
            f"after {UPDATES} updates {what} differs by {error:.2g} (relative) from that of a new layer with the "
            "same parameters and buffers: it is of earlier weights, or of something else that has moved"
        )
    weights = step_weights(x)
    expected = reference_step(fresh.double().train(), x.double(), weights.double())
    for fault in compare_step(take_step(layer.train(), x, weights), expected, STEP_MARGIN * case.tolerance()):
        yield f"after {UPDATES} updates, {fault}"


def _not_trained(layer: nn.Module) -> dict[str, Tensor]:
    trained = {name for name, parameter in layer.named_parameters() if parameter.requires_grad}
    return {name: value for name, value in state_of(layer).items() if name not in trained}


CHECKS: tuple[Check, ...] = (weights_kept, training_step, updates)
