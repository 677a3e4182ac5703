"""The rules of a layer in training: a step on whole batches, and many updates as training makes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim import Adam

from harness.audit.training_step import compare_step, moved, reference_step, take_step, tensors_of
from harness.checking.layer_case import LayerCase, log_det_tolerance, relative_error
from harness.checking.layer_checks import Check, every_result
from harness.evaluation.evaluation import state_of
from harness.training.flat import flattened
from layers import InvertibleLinear

BATCHES = (33, 64)  # events; odd, and even
LARGE_BATCH = 320  # only in float32, as in training, and up to D = `SMALL`
SMALL = 32
STEP_MARGIN = 10.0  # gradients pass more operations than results, and matrix functions lose digits in float32
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
            step_faults(case, layer, reference, size, case.tolerance(), threads=2 if size == sizes[-1] else 1)
        )
        yield from faults
        if faults:
            return


def step_faults(
    case: LayerCase,
    layer: InvertibleLinear,
    reference: InvertibleLinear,
    size: int,
    tolerance: float,
    threads: int = 1,
    few: int = 2,
) -> Iterator[str]:
    """Yield each fault of a step of `size` events; with several threads it is taken again.

    Args:
        case: provides the events.
        layer: in train(), and in the precision of the case.
        reference: the same layer in float64.
        size: number of events.
        tolerance: allowed relative error of results.
        threads: number of threads of torch for a second step.
        few: number of events of which the reference takes a step at a time.
    """
    x = case.events(size)
    weights = step_weights(x)
    expected = reference_step(reference, x.double(), weights.double(), few)
    take_step(layer, x, weights)  # what a first step may set up, such as a cache of these weights, is no change
    before = tensors_of(layer)
    step = take_step(layer, x, weights)
    for name in moved(before, tensors_of(layer)):
        yield f"{name!r} moves during a training step of {size} events without the optimiser"
    yield from compare_step(step, expected, STEP_MARGIN * tolerance)
    if not torch.equal(step.x, x):
        yield f"a training step of {size} events overwrites its input"
    if threads > 1:
        with _threads(threads):
            again = take_step(layer, x, weights)
        for fault in compare_step(again, expected, STEP_MARGIN * tolerance):
            yield f"with {threads} threads, {fault}"
    if not layer.hardens:
        with torch.no_grad():
            y, log_det = layer.eval()(x)
        layer.train()
        error = relative_error(y, step.y)
        if not error <= tolerance:
            yield f"y of {size} events in eval() differs by {error:.2g} (relative) from that of a training step"
        error = abs(float(log_det.flatten()[0]) - float(step.log_det))
        if not error <= log_det_tolerance(tolerance, float(step.log_det), case.dim):
            yield f"the log-det of {size} events in eval() differs from that of a training step"


def step_weights(x: Tensor) -> Tensor:
    """Return weights of y in the loss, standard normal over the root of the number of events, in another memory order.

    The gradient that reaches a layer in a flow may be transposed, too.
    """
    generator = torch.Generator().manual_seed(9)
    weights = torch.randn(x.transpose(1, -1).shape, generator=generator, dtype=torch.float64) / len(x) ** 0.5
    return weights.transpose(1, -1).to(x)


def updates(case: LayerCase) -> Iterator[str]:
    """Check a hundred updates of a small layer: only Adam moves the weights, and no result is of earlier ones.

    Adam is fused and the weights are views of one tensor, as in training: neither raises the weights' `_version`.
    """
    if not case.training or case.dim > SMALL:
        return
    layer, x = case.build(), case.events(BATCHES[0])
    trained = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    if not trained:
        return
    joined = flattened(trained)
    expected = [nn.Parameter(tensor.detach().clone()) for tensor in joined]
    optimiser, expected_optimiser = (Adam(tensors, lr=RATE, fused=True) for tensors in (joined, expected))
    every_result(layer, x)
    before = _not_trained(layer)
    for number in range(1, UPDATES + 1):
        for tensor in joined:
            tensor.grad.zero_()  # type: ignore[union-attr]
        y, log_det = layer(x * 1.0)
        ((0.5 * y.square().sum() / len(x) - log_det.mean()) / layer.dim).backward()
        for tensor, other in zip(joined, expected, strict=True):
            other.grad = tensor.grad.clone()  # type: ignore[union-attr]
        optimiser.step()
        expected_optimiser.step()
        if not all(torch.equal(tensor, other) for tensor, other in zip(joined, expected, strict=True)):
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


@contextmanager
def _threads(number: int) -> Iterator[None]:
    usual = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


CHECKS: tuple[Check, ...] = (training_step, updates)
