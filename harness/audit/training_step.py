"""Compare a training step with a reference in float64 that has neither its precision, its batch size nor its hooks.

A step is taken as training takes it: in train() and grad mode, on a whole batch that is the output of another module,
by loss.backward() into `.grad`. The loss is

    L = sum(weights * y) + log|det W|,

whose two parts give gradients of similar size if the weights are standard normal over the root of the number of events.
The reference has the same parameters in float64, passed through `torch.func.functional_call`, so that no hook of a
parameter is in it. It receives a few events at a time, and its gradients by x and by the parameters are computed apart,
as finite differences verify them (`check-layer`, rule gradients).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_leaves

from harness.evaluation.evaluation import changed_state

ROUNDING = 16.0  # in eps: the error of a sum, relative to the sum of the absolute values of its parts


@dataclass(frozen=True)
class Gradient:
    """The gradient of L by one tensor.

    Attributes:
        map: the part from sum(weights * y).
        log_det: the part from the log-det.
        size: of the numbers that the gradient adds up, whose rounding it has even where they cancel: the largest sum
            over the batches of the reference of the absolute values of an entry, or the sum of |weights * y| over the
            largest entry of the tensor, if that exceeds 1.
    """

    map: Tensor
    log_det: Tensor
    size: float

    @property
    def total(self) -> Tensor:
        """The sum of both parts."""
        return self.map + self.log_det


@dataclass(frozen=True)
class Reference:
    """A step in float64.

    Attributes:
        y: output of the events, (N, *shape).
        log_det: log|det W| of one event, shape ().
        by_input: gradient by the events, (N, *shape).
        by_parameter: name -> gradient, for every trained parameter.
    """

    y: Tensor
    log_det: Tensor
    by_input: Tensor
    by_parameter: dict[str, Gradient]


@dataclass(frozen=True)
class Step:
    """A step as training takes it; a gradient is None if autograd has no path.

    Attributes:
        x: the events after the step.
        y, log_det, by_input: as in `Reference`.
        by_parameter: name -> content of `.grad`.
    """

    x: Tensor
    y: Tensor
    log_det: Tensor
    by_input: Tensor | None
    by_parameter: dict[str, Tensor | None]


def reference_step(layer: nn.Module, x: Tensor, weights: Tensor, size: int = 2) -> Reference:
    """Return the step of a layer in float64, `size` events at a time.

    Args:
        layer: in float64; only its buffers are used in place.
        x: events, (N, *shape) in float64.
        weights: of y in the loss, likewise.
        size: number of events in a batch.
    """
    values = {name: value.detach().clone() for name, value in layer.named_parameters()}
    trained = {name: values[name].clone().requires_grad_() for name, p in layer.named_parameters() if p.requires_grad}
    by_map = {name: torch.zeros_like(value) for name, value in trained.items()}
    sizes = {name: torch.zeros_like(value) for name, value in trained.items()}
    by_log_det: list[Tensor] = []
    outputs, inputs, log_det, size_of_loss = [], [], x.new_zeros(()), 0.0
    for events, weight in zip(x.split(size), weights.split(size), strict=True):
        leaf = events.detach().clone().requires_grad_()
        y, log_det = functional_call(layer, values, (leaf,))
        inputs += _gradients((y * weight).sum(), [leaf])
        outputs.append(y.detach())
        size_of_loss += float((y.detach() * weight).abs().sum())
        y, log_det = functional_call(layer, values | trained, (events,))
        by_log_det = by_log_det or _gradients(log_det.mean(), list(trained.values()))
        for name, gradient in zip(trained, _gradients((y * weight).sum(), list(trained.values())), strict=True):
            by_map[name] += gradient
            sizes[name] += gradient.abs()
    by_parameter = {}
    for name, other in zip(trained, by_log_det, strict=True):
        if other.numel():
            of_loss = size_of_loss / max(float(values[name].abs().max()), 1.0)
            total = max(float((sizes[name] + other.abs()).max()), of_loss)
            by_parameter[name] = Gradient(by_map[name], other, total)
    return Reference(torch.cat(outputs), log_det.detach().mean(), torch.cat(inputs), by_parameter)


def _gradients(output: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """Return the gradients of an output, zero where there is no path; the graph is kept."""
    if not output.requires_grad or not inputs:
        return [torch.zeros_like(value) for value in inputs]
    gradients = torch.autograd.grad(output, inputs, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(v) if g is None else g for v, g in zip(inputs, gradients, strict=True)]


def take_step(layer: nn.Module, x: Tensor, weights: Tensor) -> Step:
    """Take a step of a layer in its own precision, up to the gradients; those in `.grad` are overwritten.

    Args:
        layer: in train().
        x: events, (N, *shape).
        weights: of y in the loss, likewise.
    """
    for parameter in layer.parameters():
        if parameter.grad is not None:
            parameter.grad.zero_()
    with torch.enable_grad():
        leaf = x.detach().clone().requires_grad_()
        value = leaf * 1.0
        y, log_det = layer(value)
        loss = (y * weights).sum() + log_det.mean()  # a faulty one may be of shape (N,)
        if loss.requires_grad:
            loss.backward()
    by_parameter = {
        name: None if parameter.grad is None else parameter.grad.detach().clone()
        for name, parameter in layer.named_parameters()
        if parameter.requires_grad
    }
    return Step(value.detach(), y.detach(), log_det.detach().mean(), leaf.grad, by_parameter)


def compare_step(step: Step, reference: Reference, tolerance: float) -> Iterator[str]:
    """Yield each result of a step that differs from the reference by more than the tolerance (relative).

    Gradients may also differ by the rounding of the sum over the batch.
    """
    n = f"in a training step of {len(step.y)} events"
    yield from _compare(f"y {n}", step.y, reference.y, tolerance)
    log_det, truth = float(step.log_det), float(reference.log_det)
    if not abs(log_det - truth) <= tolerance * (1 + abs(truth) + step.y[0].numel() / 4):
        yield f"the log-det {n} is {log_det:.6g}, but {truth:.6g} in float64 for few events"
    yield from _compare(f"the gradient by x {n}", step.by_input, reference.by_input, tolerance)
    for name, gradient in reference.by_parameter.items():
        value = step.by_parameter[name]
        rounding = ROUNDING * torch.finfo(step.y.dtype).eps * gradient.size
        explanation = "" if value is None else _explanation(value.double(), gradient, tolerance)
        what = f"the gradient by {name!r} {n}"
        yield from _compare(what, value, gradient.total, tolerance, rounding, explanation)


def _compare(
    what: str, value: Tensor | None, truth: Tensor, tolerance: float, rounding: float = 0.0, explanation: str = ""
) -> Iterator[str]:
    scale = float(truth.abs().max())
    if value is None:
        if scale > rounding:
            yield f"{what} is missing: autograd sees no path (detached, under no_grad, or through .data)"
        return
    error = float((value.double() - truth).abs().max())
    if not error <= tolerance * scale + rounding:
        relative = f"{error / scale:.2g} (relative)" if scale else f"{error:.2g}"
        yield f"{what} differs by {relative} from the reference in float64 with few events{explanation}"


def _explanation(value: Tensor, gradient: Gradient, tolerance: float) -> str:
    """Return a hint at the cause of a wrong gradient, "" if none is recognised."""
    if not float(gradient.log_det.abs().max()):
        causes: tuple[tuple[Tensor, str], ...] = ((-gradient.total, "its sign is wrong"),)
    else:
        causes = (
            (gradient.map, "that of the log-det is missing"),
            (gradient.map - gradient.log_det, "that of the log-det has the wrong sign"),
            (gradient.log_det, "that of y is missing"),
            (-gradient.total, "its sign is wrong"),
        )
    scale = float(gradient.total.abs().max())
    for wrong, cause in causes:
        if float((value - wrong).abs().max()) <= max(tolerance, 1e-3) * scale:
            return f": {cause}"
    return ""


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return a copy of every tensor that a module holds: parameters, buffers, and those in other attributes."""
    held = dict([*module.named_parameters(), *module.named_buffers()])
    registries = {"_parameters", "_buffers", "_modules"}
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if name in registries:
                continue
            for number, leaf in enumerate(tree_leaves(value)):
                if isinstance(leaf, Tensor):
                    held[f"{path}.{name}[{number}]".lstrip(".")] = leaf
    return {name: value.detach().clone() for name, value in held.items()}


def moved(before: dict[str, Tensor], after: dict[str, Tensor]) -> list[str]:
    """Return the names of the tensors that have other values, except counters: single whole numbers."""
    names = [name for name in before.keys() & after.keys() if not _is_counter(before[name])]
    return list(changed_state({name: before[name] for name in names}, {name: after[name] for name in names}))


def _is_counter(value: Tensor) -> bool:
    return value.numel() == 1 and not value.is_floating_point() and not value.is_complex()
