"""The rules of a layer in training: a step on whole batches, and many updates as training makes them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import Adam

from harness.audit.training_step import (
    STEP_MARGIN,
    OptimiserTwin,
    compare_step,
    moved,
    reference_step,
    step_faults,
    step_weights,
    take_step,
)
from harness.checking.layer_case import LayerCase, relative_error
from harness.checking.layer_checks import Check, every_result
from harness.evaluation.evaluation import state_of
from harness.training.updates import flattened
from layers import InvertibleLinear

BATCHES = (33, 64)  # events; odd, and even
LARGE_BATCH = 320  # only in float32, as in training, and up to D = `SMALL`
SMALL = 32
UPDATES = 100
VALIDATED = 20  # updates between two validations
RATE = 1e-3


def training_step(case: LayerCase) -> Iterator[str]:
    """Check a step: its results and gradients against float64 with few events, and that it moves nothing itself."""
    if not case.training:
        return
    layer = case.build()
    reference = case.copy(layer).double()
    small = case.dim <= SMALL and case.dtype == torch.float32
    sizes = (*BATCHES, *(size for size in case.batches if size < LARGE_BATCH), LARGE_BATCH) if small else BATCHES
    for size in sizes:
        faults = list(
            step_faults(layer, reference, case.events(size), case.tolerance(), threads=2 if size == sizes[-1] else 1)
        )
        yield from faults
        if faults:
            return


def updates(case: LayerCase) -> Iterator[str]:
    """Check a hundred updates of a small layer: only Adam moves the weights, and no result is of earlier ones.

    Adam is fused and the weights are views of one tensor, as in training: neither raises the weights' `_version`. On a
    CPU they are float32, as there.
    """
    if not case.training or case.dim > SMALL or (case.dtype != torch.float32 and case.device == "cpu"):
        return
    layer, x = case.build(), case.events(BATCHES[0])
    trained = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    if not trained:
        return
    joined = flattened(trained)
    optimiser = Adam(joined, lr=RATE, fused=True)
    twin = OptimiserTwin(optimiser)
    every_result(layer, x)
    before = _not_trained(layer)
    for number in range(1, UPDATES + 1):
        for tensor in joined:
            tensor.grad.zero_()  # type: ignore[union-attr]
        y, log_det = layer(x * 1.0)
        ((0.5 * y.square().sum() / len(x) - log_det.mean()) / layer.dim).backward()
        optimiser.step()
        if not twin.agrees():
            yield f"after update {number} the weights are not what Adam computes from their gradients: they move alone"
            return
        if number % VALIDATED == 0:
            every_result(layer.eval(), x)
            layer.train()
    for name in moved(before, _not_trained(layer)):
        yield f"{name!r} moves during {UPDATES} updates without the optimiser"
    yield from _compare_fresh(case, layer, x)


def _compare_fresh(case: LayerCase, layer: InvertibleLinear, x: Tensor) -> Iterator[str]:
    """Compare a trained layer with a new one of the same weights: every result, and a training step."""
    fresh = case.copy(layer)
    results, truth = every_result(layer.eval(), x), every_result(fresh.eval(), x)
    for what, value in results.items():
        error = relative_error(value.double(), truth[what].double())
        if not error <= case.tolerance():
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


CHECKS: tuple[Check, ...] = (training_step, updates)
