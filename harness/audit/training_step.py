"""Compare a training step with a reference in float64 that has neither its precision, its batch size nor its hooks.

A step is taken as training takes it: in train() and grad mode, on a whole batch that is the output of another module,
by loss.backward() into `.grad`. The loss is

    L = sum(weights * y) + log|det W|,

whose two parts give gradients of similar size if the weights are standard normal over the root of the number of events.
The reference has the same parameters in float64, without hooks. It receives a few events at a time, and its gradients
by x and by the parameters are computed apart, as finite differences verify them (`check-layer`, rule gradients).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from harness.audit.findings import largest
from harness.audit.module_state import moved, tensors_of, used
from layers import InvertibleLinear

FEW = 8  # events at a time of the reference of a layer
DIRECTIONS = 2  # of each tensor, along which its gradient is compared: a single one may hide an error
STEP_MARGIN = 10.0  # gradients pass more operations than results, and matrix functions lose digits in float32
DIFFERENCE = 1e-4  # half the distance of a central difference in float64, in the length of all entries
DERIVATIVE_TOLERANCE = 1e-4  # relative
ROUNDING_OF_DIFFERENCES = 100 / DIFFERENCE  # in eps
ROUNDING = 16.0  # in eps: the error of a sum, relative to the sum of the absolute values of its parts
SMALLEST_ROW = 0.01  # of a parameter; the gradient of a smaller one has more rounding than is allowed
SCALES = tuple(2.0**power for power in (-20, -13, -7, 7, 13))  # powers of two leave all rounding as it is
UNEVEN = 1.001  # a multiple that does not, and so shows how much rounding changes
NOISE = 8.0  # multiples of that
LINEAR_TOLERANCE = 1e-2  # relative
VANISHED = 100.0  # gradients that are rounding alone, in multiples of eps and of the sum of the parts of the loss
LARGE = 3e3  # size of the gradient of a single entry of y, in multiples of the others
CHANGES = (1.0, 0.9, 1.1)  # of that size: what rounding loses by chance, it does not lose with each of them
PATHLESS = ": autograd sees no path (detached, under no_grad, or through .data)"


@dataclass(frozen=True)
class TrainingStep:
    """The results of a step, taken as in training or in float64.

    Attributes:
        x: the events after the step, (N, *shape).
        y: their output, (N, *shape).
        log_det: log|det W| of one event, shape ().
        gradients: in float64, the gradient of L by "x", and by each trained parameter, by its name in quotes; none
            where autograd has no path.
        sizes: of a reference, parameter -> the size of the numbers that its gradient adds up, whose rounding it has
            even where they cancel: the largest sum over the batches of the absolute values of an entry, or the sum of
            |weights * y| over the scale of the parameter (see `_scale`).
    """

    x: Tensor
    y: Tensor
    log_det: Tensor
    gradients: dict[str, Tensor]
    sizes: dict[str, float] = field(default_factory=dict)


def every_fault(layer: InvertibleLinear, reference: nn.Module, x: Tensor, tolerance: float) -> Iterator[str]:
    """Yield each fault of a layer in training, of all kinds below; the arguments are those of `step_faults`."""
    few = x[:FEW]
    yield from derivative_faults(reference, few.double(), DIRECTIONS)
    yield from step_faults(layer, reference, x, tolerance, few=FEW)
    yield from linearity_faults(layer, x, step_weights(x), tolerance)
    yield from copy_faults(layer, reference, few, STEP_MARGIN * tolerance)


def step_faults(
    layer: InvertibleLinear, reference: nn.Module, x: Tensor, tolerance: float, threads: int = 1, few: int = 2
) -> Iterator[str]:
    """Yield each fault of a step; with several threads it is taken again.

    Args:
        layer: in train().
        reference: the same layer in float64, which takes a step of `few` events at a time.
        x: events, (N, *shape), in the precision of the layer.
        tolerance: allowed relative error of results.
        threads: number of threads of torch for a second step.
    """
    size = len(x)
    weights = step_weights(x)
    expected = reference_step(reference, x.double(), weights.double(), few)
    take_step(layer, x, weights)  # what a first step may set up, such as a cache of these weights, is no change
    before = tensors_of(layer)
    step = take_step(layer, x, weights)
    for name in used(layer, moved(before, tensors_of(layer)), x):
        yield f"{name!r} moves during a training step of {size} events without the optimiser"
    yield from compare_step(step, expected, STEP_MARGIN * tolerance)
    if not torch.equal(step.x, x):
        yield f"a training step of {size} events overwrites its input"
    if threads > 1:
        usual = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            again = take_step(layer, x, weights)
        finally:
            torch.set_num_threads(usual)
        for fault in compare_step(again, expected, STEP_MARGIN * tolerance):
            yield f"with {threads} threads, {fault}"
    if not layer.hardens:
        with torch.no_grad():
            y, log_det = layer.eval()(x)
        layer.train()
        other = "that of a training step"
        yield from differences(f"y of {size} events in eval()", y, step.y.double(), tolerance, other=other)
        if not abs(float(log_det.mean() - step.log_det)) <= log_det_tolerance(tolerance, step.log_det, layer.dim):
            yield f"the log-det of {size} events in eval() differs from {other}"


def step_weights(x: Tensor) -> Tensor:
    """Return weights of y in the loss, standard normal over the root of the number of events, in another memory order.

    The gradient that reaches a layer in a flow may be transposed, too.
    """
    generator = torch.Generator().manual_seed(9)
    weights = torch.randn(x.transpose(1, -1).shape, generator=generator, dtype=torch.float64) / len(x) ** 0.5
    return weights.transpose(1, -1).to(x)


def reference_step(layer: nn.Module, x: Tensor, weights: Tensor, size: int = 2) -> TrainingStep:
    """Return the step of a layer in float64, `size` events at a time; it loses the hooks of its parameters.

    `x`, the events, and `weights`, of y in the loss, are (N, *shape) in float64.
    """
    trained = {name: weight for name, weight in layer.named_parameters() if weight.requires_grad}
    without_hooks(layer)
    parts = list(zip(x.split(size), weights.split(size), strict=True))
    by_map, sizes = summed_gradients(((layer(events)[0] * weight).sum() for events, weight in parts), trained)
    by_log_det = gradients_of(layer(parts[0][0])[1].mean(), list(trained.values()))
    outputs, inputs, log_det, size_of_loss = [], [], x.new_zeros(()), 0.0
    for parameter in trained.values():
        parameter.requires_grad_(False)
    try:
        for events, weight in parts:
            leaf = events.detach().clone().requires_grad_()
            y, log_det = layer(leaf)
            inputs += gradients_of((y * weight).sum(), [leaf])
            outputs.append(y.detach())
            size_of_loss += float((y.detach() * weight).abs().sum())
    finally:
        for parameter in trained.values():
            parameter.requires_grad_()
    step = TrainingStep(x, torch.cat(outputs), log_det.detach().mean(), {"x": torch.cat(inputs)})
    for (name, parameter), other in zip(trained.items(), by_log_det, strict=True):
        if other.numel():
            step.gradients[repr(name)] = by_map[name] + other
            total = float((sizes[name] + other.abs()).max())
            step.sizes[repr(name)] = max(total, size_of_loss / _scale(parameter.detach()))
    return step


def _scale(tensor: Tensor) -> float:
    """Return the largest entry of a tensor, or that of its smallest row which is not 0 if that is below 1, to 0.01.

    A map of the direction of each row alone has the gradient of a small row enlarged by its inverse length, and so the
    rounding of it. Of zeros it is 1.
    """
    rows = tensor.abs().flatten(1).amax(1) if tensor.ndim > 1 else tensor.abs().amax().reshape(1)
    smallest = float(rows[rows > 0].min()) if bool((rows > 0).any()) else 1.0
    return max(smallest, SMALLEST_ROW) if smallest < 1 else max(float(rows.max()), 1.0)


def summed_gradients(
    losses: Iterable[Tensor], trained: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the sums over losses of their gradients by each tensor, and of the absolute values of these."""
    totals, sizes = ({name: torch.zeros_like(value) for name, value in trained.items()} for _ in range(2))
    for loss in losses:
        for name, gradient in zip(trained, gradients_of(loss, list(trained.values())), strict=True):
            totals[name] += gradient
            sizes[name] += gradient.abs()
    return totals, sizes


def without_hooks(module: nn.Module) -> None:
    """Remove the hooks of parameters, which may change their gradients."""
    for parameter in module.parameters():
        parameter._backward_hooks = None


def gradients_of(output: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """Return the gradients of an output, zero where there is no path; the graph is kept."""
    if not output.requires_grad or not inputs:
        return [torch.zeros_like(value) for value in inputs]
    gradients = torch.autograd.grad(output, inputs, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(v) if g is None else g for v, g in zip(inputs, gradients, strict=True)]


def derivative_faults(layer: nn.Module, x: Tensor, directions: int = 1) -> Iterator[str]:
    """Yield each gradient, of y or log-det by x or a parameter, that is not the derivative, by central differences.

    A gradient that is wrong in every precision and batch is wrong in `reference_step` as well.

    Args:
        layer: in float64; it loses the hooks of its parameters.
        x: events, (N, *shape), in float64.
        directions: random ones of each tensor, along which its gradient is compared.
    """
    without_hooks(layer)
    leaf = x.detach().clone().requires_grad_()
    leaves = {"x": leaf} | {repr(name): value for name, value in layer.named_parameters() if value.requires_grad}
    for name, value in leaves.items():
        along = [_derivatives(lambda: layer(leaf * 1.0), value, seed) for seed in range(directions)]
        for output, *faults in zip(("y", "log-det"), *along, strict=True):
            fault = next((each for each in faults if each is not None), None)
            if fault is not None:
                yield f"the gradient of {output} by {name} differs from finite differences{fault}"


def _derivatives(function: Callable[[], tuple[Tensor, Tensor]], leaf: Tensor, seed: int) -> Iterator[str | None]:
    """Yield the fault of the gradient of <v, f> along u for each result f, for random v and u of length 1, or None.

    The leaf, which `function` reads, is moved in place and back.
    """
    draws = torch.Generator().manual_seed(11 + seed)
    values = function()
    *weights, u = (torch.randn(t.shape, generator=draws, dtype=torch.float64).to(t) for t in (*values, leaf))
    u = u / u.norm().clamp(min=torch.finfo(u.dtype).tiny)
    claims = [
        torch.autograd.grad(value, leaf, v, retain_graph=True, allow_unused=True)[0] if value.requires_grad else None
        for value, v in zip(values, weights, strict=True)
    ]
    point, ends = leaf.detach().clone(), []
    with torch.no_grad():
        for step in (DIFFERENCE, -DIFFERENCE):
            leaf.copy_(point + step * u)
            ends.append([value.clone() for value in function()])  # it may be the leaf itself, such as a log-det
        leaf.copy_(point)
    for value, v, gradient, after, before in zip(values, weights, claims, *ends, strict=True):
        products = torch.zeros_like(u) if gradient is None else gradient * u
        difference = float(((after - before) * v).sum()) / (2 * DIFFERENCE)
        rounding = ROUNDING_OF_DIFFERENCES * torch.finfo(v.dtype).eps * float(value.detach().norm() * v.norm())
        allowed = DERIVATIVE_TOLERANCE * (abs(difference) + float(products.norm())) + rounding
        wrong = not abs(float(products.sum()) - difference) <= allowed
        yield (PATHLESS if gradient is None else "") if wrong else None


def take_step(layer: nn.Module, x: Tensor, weights: Tensor, scale: float = 1.0, log_det: bool = True) -> TrainingStep:
    """Take a step of a layer in train(), up to the gradients.

    Args:
        x, weights: events, and the weights of y in the loss, (N, *shape).
        scale: factor of the loss.
        log_det: whether the log-det is a part of the loss.
    """
    for parameter in layer.parameters():
        if parameter.grad is not None:
            parameter.grad.zero_()
    with torch.enable_grad():
        leaf = x.detach().clone().requires_grad_()
        value = leaf * 1.0
        y, constant = layer(value)
        loss = scale * ((y * weights).sum() + log_det * constant.mean())  # a faulty one may be of shape (N,)
        if loss.requires_grad:
            loss.backward()
    step = TrainingStep(value.detach(), y.detach(), constant.detach().mean(), {})
    trained = {repr(name): weight for name, weight in layer.named_parameters() if weight.requires_grad}
    for what, tensor in ({"x": leaf} | trained).items():
        if tensor.grad is not None and tensor.numel():
            step.gradients[what] = tensor.grad.detach().double().clone()
    return step


def compare_step(step: TrainingStep, reference: TrainingStep, tolerance: float) -> Iterator[str]:
    """Yield each result of a step that differs from the reference by more than the tolerance (relative).

    Gradients may also differ by the rounding of the sum over the batch.
    """
    n = f"in a training step of {len(step.y)} events"
    yield from differences(f"y {n}", step.y, reference.y, tolerance)
    log_det, exact = float(step.log_det), float(reference.log_det)
    if not abs(log_det - exact) <= log_det_tolerance(tolerance, log_det, step.y[0].numel()):
        yield f"the log-det {n} is {log_det:.6g}, but {exact:.6g} in float64 for few events"
    for what, truth in reference.gradients.items():
        rounding = ROUNDING * torch.finfo(step.y.dtype).eps * reference.sizes.get(what, 0.0)
        value = step.gradients.get(what)  # none if it is frozen by now
        yield from differences(f"the gradient by {what} {n}", value, truth, tolerance, rounding)


def log_det_tolerance(tolerance: float, log_det: float | Tensor, dim: int) -> float:
    """Return the error of a log-det in nats that rounding explains, from the relative error of results.

    The log-det adds up the logarithms of D singular values, each with an error.
    """
    return tolerance * (1 + abs(float(log_det)) + dim / 4)


def differences(
    what: str,
    value: Tensor | None,
    truth: Tensor,
    tolerance: float,
    rounding: float = 0.0,
    other: str = "the reference in float64 with few events",
) -> Iterator[str]:
    """Yield a message if a value differs from the true one by more than tolerance * max |truth| + rounding."""
    scale = float(truth.abs().max())
    if value is None:
        if scale > rounding:
            yield f"{what} is missing{PATHLESS}"
        return
    error = float((value.double() - truth).abs().max())
    if not error <= tolerance * scale + rounding:
        relative = f"{error / scale:.2g} (relative)" if scale else f"{error:.2g}"
        yield f"{what} differs by {relative} from {other}"


def linearity_faults(layer: InvertibleLinear, x: Tensor, weights: Tensor, rounding: float) -> Iterator[str]:
    """Yield the first gradient that is not linear in those of the results.

    The loss of a flow is a mean over events and entries, so the gradients that reach a layer are far smaller than those
    of a test, and differ from entry to entry. A backward pass that clips, rounds or drops small ones trains another
    model, or none. So a step is compared with

    - steps of multiples of the loss: the gradients are these multiples;
    - a step in which a single entry of y has a large gradient in addition: the gradients are the sums.

    Args:
        layer: in train().
        x, weights: events, and the weights of y in the loss, (N, *shape).
        rounding: relative error of a gradient that the condition number of the layer explains.
    """
    n = f"in a training step of {len(x)} events"
    step = take_step(layer, x, weights)
    expected = step.gradients
    for scale in SCALES:
        multiple = take_step(layer, x, weights, scale).gradients
        for what in expected.keys() & multiple.keys():
            error = largest(multiple[what] / scale - expected[what])
            if error > LINEAR_TOLERANCE * largest(expected[what]):
                yield (
                    f"the gradient by {what} {n} of {scale:.3g} times the loss is not {scale:.3g} times the gradient: "
                    f"the backward pass is not linear, and losses of flows are small"
                )
                return
    single = x.new_zeros(x.shape)
    single.flatten(1)[:, 0] = 1.0
    alone = take_step(layer, x, single, log_det=False).gradients
    for what in expected.keys() & alone.keys():
        size, other = largest(expected[what]), largest(alone[what])
        if not other or size <= VANISHED * torch.finfo(x.dtype).eps * float((step.y * weights).abs().sum()):
            continue  # of one channel a reflection has no gradient but rounding
        factors = (LARGE * size / other * change for change in CHANGES)
        if all(_loses(what, layer, x, weights, factor * single, expected[what], rounding) for factor in factors):
            yield (
                f"the gradient by {what} {n} loses what is small beside that of the first entry of y: the backward "
                "pass is not linear, and Adam scales small gradients up"
            )
            return


def _loses(
    what: str, layer: InvertibleLinear, x: Tensor, weights: Tensor, added: Tensor, expected: Tensor, rounding: float
) -> bool:
    """Return whether a step with a large gradient in addition loses more of the expected one than rounding explains."""
    large, uneven, both = (
        take_step(layer, x, cotangent, log_det=log_det).gradients[what]
        for cotangent, log_det in ((added, False), (UNEVEN * added, False), (weights + added, True))
    )
    size = largest(expected)
    hidden = LARGE * rounding * size + NOISE * largest(uneven / UNEVEN - large)
    return hidden < size / 4 and largest(both - large - expected) > LINEAR_TOLERANCE * size + hidden


@torch.no_grad()
def copy_faults(layer: nn.Module, reference: nn.Module, x: Tensor, tolerance: float) -> Iterator[str]:
    """Yield how a deep copy with changed weights differs from another layer with its state.

    Averages of weights are kept in such a copy. What a layer holds besides its state, such as a function that refers to
    the original, makes the copy apply other weights.

    Args:
        reference: the same layer in float64, whose state is changed and restored.
        x: events, (N, *shape), in the precision of the layer.
    """
    twin, kept = deepcopy(layer), deepcopy(reference.state_dict())
    for number, weight in enumerate(twin.parameters()):
        if weight.requires_grad:
            weight.mul_(1 + 0.01 * (1 + number % 3))
    reference.load_state_dict(twin.state_dict())
    (y, log_det), (truth, expected) = twin(x), reference(x.double())
    reference.load_state_dict(kept)
    yield from differences("y of a deep copy with other weights", y, truth, tolerance, other="that of a new layer")
    if not abs(float(log_det.mean()) - float(expected)) <= log_det_tolerance(tolerance, expected, x[0].numel()):
        yield "the log-det of a deep copy with other weights differs from that of a new layer with them"
