"""The rules of a layer's map: each is a function from a case to the faults that it finds.

A check builds the layer with weights away from initialisation and yields one message per fault. Errors are bounded
by condition * eps (`LayerCase.tolerance`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from harness.audit.training_step import derivative_faults, log_det_tolerance
from harness.checking.layer_case import MARGIN, LayerCase, inverse_matrix, matrix, relative_error
from harness.timing.operations import perturb
from layers import InvertibleLinear

Check = Callable[[LayerCase], Iterator[str]]

EXPLAINED = 1e-3  # relative limit of the error that a hint leaves unexplained


def forward(case: LayerCase) -> Iterator[str]:
    """Check that forward returns a pair (y, log-det), with y like x, and does not initialise the layer from x."""
    layer, x = case.initial(), case.events()
    result = layer(x)
    if not (isinstance(result, tuple) and len(result) == 2 and all(isinstance(part, Tensor) for part in result)):
        yield f"forward returns {type(result).__name__}, not a pair of tensors (y, log-det)"
        return
    y = result[0]
    if y.shape != x.shape:
        yield f"y has shape {tuple(y.shape)}, x has {tuple(x.shape)}"
    if (y.dtype, y.device) != (x.dtype, x.device):
        yield f"y is {y.dtype} on {y.device}, x is {x.dtype} on {x.device}"
    if not y.isfinite().all():
        yield "y is not finite at initialisation"
    layer, other = (replace(case, initialised=False).initial() for _ in range(2))
    other(case.first_batch())
    y, after = layer(x)[0], other(x)[0]
    differs = relative_error(after, y) > MARGIN * torch.finfo(case.dtype).eps
    if differs and torch.equal(after, other(x)[0]):
        yield (
            "forward sets the map from the events of its first call: set parameters or buffers in a method "
            "initialise(x), which a flow calls once with the first minibatch of training"
        )


def conditioning(case: LayerCase) -> Iterator[str]:
    """Check that W is invertible, and well enough conditioned that rounding does not hide faults in other checks."""
    limit = 0.1 / (MARGIN * torch.finfo(case.dtype).eps)
    if not case.condition < limit:
        yield (
            f"W has condition number {case.condition:.2g} near initialisation, above {limit:.2g}: rounding leaves no "
            f"inverse in {str(case.dtype).removeprefix('torch.')}"
        )


def dense(case: LayerCase) -> Iterator[str]:
    """Check that dense() is the matrix of forward, (D, D) on events in row-major order."""
    layer, x = case.build(), case.events()
    w, claimed = matrix(layer, case.dtype), layer.dense().detach().double()
    if claimed.shape != w.shape:
        yield f"dense() has shape {tuple(claimed.shape)}, expected (D, D) = {tuple(w.shape)}"
        return
    tolerance = case.tolerance()
    error = relative_error(claimed, w)
    if error > tolerance:
        why = explain_dense(claimed, w, tolerance)
        yield f"dense() differs from the matrix of forward by {error:.2g} (relative){why}"
    yield from dense_faults(layer, claimed, x, tolerance)


@torch.no_grad()
def dense_faults(layer: InvertibleLinear, w: Tensor, x: Tensor, tolerance: float) -> Iterator[str]:
    """Yield the difference of forward from dense(), in float64, on events."""
    y = layer(x)[0] - layer(torch.zeros_like(x))[0]
    error = relative_error(y.double().flatten(1), x.double().flatten(1) @ w.T)
    if error > tolerance:
        yield f"forward(x) differs from dense() @ x + b by {error:.2g} (relative)"


def log_det(case: LayerCase) -> Iterator[str]:
    """Check that the log-det of forward, and that of log_det(), is log|det W| of one whole event."""
    layer, x = case.build(), case.events()
    truth = torch.linalg.slogdet(matrix(layer, case.dtype))[1].item()
    yield from log_det_faults(layer, claimed_log_det(layer, x), truth, case.tolerance())
    yield from log_det_method_faults(layer, x, case.tolerance())


def reverse_log_det(case: LayerCase) -> Iterator[str]:
    """Check that the log-det of the inverse, where a library's layer returns one, is minus log|det W|."""
    layer = case.build()
    log_det = getattr(layer, "inverse_log_det", lambda y: None)(case.events())
    if log_det is not None:
        claimed = -log_det.detach().double().flatten()[0].item()
        truth = torch.linalg.slogdet(matrix(layer, case.dtype))[1].item()
        yield from log_det_faults(layer, claimed, truth, case.tolerance(), "minus the log-det of the reverse direction")


def log_det_faults(
    layer: InvertibleLinear, claimed: float, truth: float, tolerance: float, what: str = "log-det"
) -> Iterator[str]:
    """Yield the fault of a claimed log-det, with its probable cause."""
    if not abs(claimed - truth) <= log_det_tolerance(tolerance, truth, layer.dim):
        why = explain_log_det(claimed, truth, layer)
        yield f"{what} is {claimed:.6g} but slogdet of the map is {truth:.6g}{why}"


def log_det_method_faults(layer: InvertibleLinear, x: Tensor, tolerance: float) -> Iterator[str]:
    """Yield the difference of log_det() from the log-det of forward."""
    value = claimed_log_det(layer, x)
    error = abs(layer.log_det().detach().double().flatten()[0].item() - value)
    if not error <= log_det_tolerance(tolerance, value, layer.dim):
        yield f"log_det() differs from the log-det of forward by {error:.3g}"


def log_det_form(case: LayerCase) -> Iterator[str]:
    """Check that the log-det is one number of x's dtype, shape (), whatever x and the batch are."""
    layer, x = case.build(), case.events()
    log_det = layer(x)[1]
    if log_det.shape != ():
        per_sample = ", one per sample" if log_det.shape == x.shape[:1] else ""
        yield f"log-det has shape {tuple(log_det.shape)}{per_sample}: W is the same for every x, so it has shape ()"
    if (log_det.dtype, log_det.device) != (x.dtype, x.device):
        yield f"log-det is {log_det.dtype} on {log_det.device}, x is {x.dtype} on {x.device}"
    value = claimed_log_det(layer, x)
    tolerance = 10 * torch.finfo(x.dtype).eps * (1 + abs(value))
    alone = [claimed_log_det(layer, event) for event in x.split(1)]
    if not max(alone) - min(alone) <= tolerance:
        yield f"log-det differs by {max(alone) - min(alone):.3g} between events: that of a linear map is one constant"
    for what, change in (("x = 0", claimed_log_det(layer, 0 * x) - value), ("a batch of one", alone[0] - value)):
        if not abs(change) <= tolerance:
            yield f"log-det changes by {abs(change):.3g} for {what}: that of a linear map is one constant"


def inverse(case: LayerCase) -> Iterator[str]:
    """Check that inverse undoes forward, and forward undoes inverse."""
    layer, x = case.build(), case.events()
    with torch.no_grad():
        back = layer.inverse(layer(x)[0])
        if (back.shape, back.dtype) != (x.shape, x.dtype):
            yield f"inverse gives {tuple(back.shape)} {back.dtype}, expected {tuple(x.shape)} {x.dtype}"
            return
        there = layer(layer.inverse(x))[0]
    tolerance = case.tolerance()
    for what, result in (("inverse(forward(x))", back), ("forward(inverse(x))", there)):
        error = relative_error(result, x)
        if error > tolerance:
            yield f"{what} differs from x by {error:.2g} (relative){explain_inverse(layer, tolerance, case.dtype)}"


def affine(case: LayerCase) -> Iterator[str]:
    """Check that events of all kinds, alone and among others, are mapped by the same matrices, with the same log-det.

    Data are smooth, sparse, of one sign or saturated; a layer that treats such events otherwise has no likelihood.
    """
    layer, normal = case.build(), case.events()
    tolerance, constant = case.tolerance(), claimed_log_det(layer, normal)
    with torch.no_grad():
        origin = torch.zeros_like(normal[:1])
        maps = (
            ("y", lambda x: layer(x)[0], matrix(layer, case.dtype), layer(origin)[0]),
            ("the inverse", layer.inverse, inverse_matrix(layer, case.dtype), layer.inverse(origin)),
        )
        for kind, x in _kinds(normal).items():
            for batch in (x, torch.cat([normal, x])):
                for what, function, w, offset in maps:
                    expected = (x.double().flatten(1) @ w.T).reshape(x.shape) + offset
                    error = relative_error(function(batch)[-len(x) :].double(), expected)
                    if not error <= tolerance:
                        yield f"{what} of {kind} events differs by {error:.2g} (relative) from that of a linear map"
                log_det = layer(batch)[1].double()
                if not float((log_det - constant).abs().max()) <= log_det_tolerance(tolerance, constant, case.dim):
                    yield f"the log-det of {kind} events is {float(log_det.flatten()[0]):.6g}, of others {constant:.6g}"


def _kinds(normal: Tensor) -> dict[str, Tensor]:
    """Return name -> events of one kind, made from standard normal ones."""
    spatial = tuple(range(2, normal.ndim))
    smooth = normal
    for axis in spatial:
        smooth = smooth.cumsum(axis) / smooth.shape[axis] ** 0.5
    entries = torch.arange(normal[0].numel(), dtype=normal.dtype, device=normal.device).reshape(normal[:1].shape)
    sparse = torch.zeros_like(normal)
    sparse.flatten(1)[:, normal[0].numel() // 2] = 1
    return {
        "normal": normal.flip(0),
        "large": 10 * normal,
        "far": 100 * normal,
        "smooth": smooth,
        "constant": normal.mean(spatial, keepdim=True).expand_as(normal).contiguous(),
        "sparse": sparse,
        "alternating": normal.abs() * (1 - 2 * (entries % 2)),
        "rising": entries / entries.numel() + 0.01 * normal,
        "bright": normal + 3,
        "positive": normal.abs(),
        "saturated": normal.sign(),
        "heavy-tailed": normal**5,
        "rounded": normal.round(),
        "small": 0.01 * normal,
        "equal": normal[:1].expand_as(normal).contiguous(),
    }


def inverter(case: LayerCase) -> Iterator[str]:
    """Check that inverter() returns a callable with the same results as inverse."""
    layer, y = case.build(), case.events()
    invert = layer.inverter()
    with torch.no_grad():
        for call in ("first", "second"):
            error = relative_error(invert(y), layer.inverse(y))
            if error > case.tolerance():
                yield f"the {call} call of inverter()'s result differs from inverse by {error:.2g} (relative)"


def gradients(case: LayerCase) -> Iterator[str]:
    """Check the gradients of y and log-det, by input and parameters, against finite differences (in float64)."""
    if case.dtype == torch.float64:
        yield from derivative_faults(case.build(), case.events(2))


def weight_updates(case: LayerCase) -> Iterator[str]:
    """Check that nothing is cached: change the weights after calling every method, then load others.

    The same tensor objects are used before and after, so that a cache by input is detected too.
    """
    layer, unused, x = case.build(), case.build(), case.events()
    every_result(layer, x)
    layer(x)  # dense() may have applied forward to another input since
    for twin in (layer, unused):
        perturb(twin, 0.01, torch.Generator().manual_seed(3))
    yield from _stale(case, layer, unused, x, "a change of weights")
    other, fresh = case.build(), case.build()
    for twin in (other, fresh):
        perturb(twin, 0.02, torch.Generator().manual_seed(4))
    layer.load_state_dict(other.state_dict())
    yield from _stale(case, layer, fresh, x, "load_state_dict")


def _stale(case: LayerCase, layer: InvertibleLinear, unused: InvertibleLinear, x: Tensor, after: str) -> Iterator[str]:
    for what, error in differing(every_result(unused, x), every_result(layer, x), case.tolerance()):
        yield f"after {after} {what} still uses the old weights (relative error {error:.2g})"


CHECKS: tuple[Check, ...] = (
    forward,
    conditioning,
    dense,
    log_det,
    reverse_log_det,
    log_det_form,
    inverse,
    affine,
    inverter,
    weight_updates,
)


def claimed_log_det(layer: InvertibleLinear, x: Tensor) -> float:
    """Return the log-det as a number, the first if a layer wrongly gives several."""
    return layer(x)[1].detach().double().flatten()[0].item()


@torch.no_grad()
def results(layer: InvertibleLinear, x: Tensor) -> dict[str, Tensor]:
    """Return y, the log-det and the inverse that a layer computes from x, to be compared by `differing`."""
    y, log_det = layer(x)
    return {"y": y, "log-det": scaled(log_det), "inverse": layer.inverse(x)}


@torch.no_grad()
def every_result(layer: InvertibleLinear, x: Tensor) -> dict[str, Tensor]:
    """Return the results of x, then those of the other methods, which may call forward with other events."""
    first = results(layer, x)
    others = {"inverter()": layer.inverter()(x), "dense()": layer.dense(), "log_det()": scaled(layer.log_det())}
    return first | others


def scaled(log_det: Tensor) -> Tensor:
    """Return a log-det, the first if there are wrongly several, on a scale of at least 1 nat."""
    return torch.cat([log_det.flatten()[:1], log_det.new_ones(1)])


def differing(expected: dict[str, Tensor], values: dict[str, Tensor], tolerance: float) -> Iterator[tuple[str, float]]:
    """Yield the results that differ by more than the tolerance (relative), and by how much."""
    for what, truth in expected.items():
        error = relative_error(values[what].double(), truth.double())
        if not error <= tolerance:
            yield what, error


# The rest gives hints at the cause of a wrong result: text to append to a message, empty if no cause is recognised. A
# hint explains the whole error, up to rounding.


def explain_log_det(claimed: float, truth: float, layer: InvertibleLinear) -> str:
    """Return the error of a wrong log-det, and a hint from its ratio to the right one."""
    error, n, c = claimed - truth, layer.positions, layer.channels
    if not math.isfinite(error):
        return ""
    text = f": off by {error:.4g} nats, {error / n:.4g} per position and {error / c:.4g} per channel"
    if abs(claimed) < 1e-9 or abs(truth) < 1e-9:
        return text
    spatial = {1: "T", 2: "H * W"}[len(layer.shape) - 1]
    causes = {
        float(n): f"the number of positions: multiply by n = {spatial}",
        1 / n: f"one over the number of positions: n = {spatial} is counted twice",
        float(c): "the number of channels: multiply by C",
        -1.0: "the sign is wrong: is this the log-det of the inverse?",
        2.0: "half is missing: is one of two factors (or of each mirrored pair) left out?",
        0.5: "all of it is counted twice",
        1 / c: "one over the number of channels: C is counted too often",
    }
    for ratio, meaning in causes.items():
        if ratio != 1 and abs(truth - ratio * claimed) <= EXPLAINED * abs(error):
            return f"{text}; ratio {ratio:.4g}, {meaning}"
    return text


def explain_dense(claimed: Tensor, w: Tensor, tolerance: float) -> str:
    """Return a hint from comparing a wrong dense() with the matrix of forward."""
    if relative_error(claimed.T, w) <= tolerance:
        return ": it is transposed; W @ x.reshape(D) = y.reshape(D)"
    if relative_error(claimed.flatten().sort().values, w.flatten().sort().values) <= tolerance:
        return ": the same entries in different places; index D in row-major order of (C, *spatial)"
    return ""


def explain_inverse(layer: InvertibleLinear, tolerance: float, dtype: torch.dtype) -> str:
    """Return a hint from comparing the matrix of a wrong inverse with that of forward."""
    w, claimed = matrix(layer, dtype), inverse_matrix(layer, dtype)
    inverted = torch.linalg.inv(w)
    if relative_error(claimed, inverted) <= tolerance:
        return ": the linear part is right, the offset is not; subtract the bias before solving"
    if relative_error(claimed, inverted.T) <= tolerance:
        return ": it inverts the transpose of W"
    if relative_error(claimed, inverted) > EXPLAINED:
        return ": its matrix is not the inverse of forward's (are the factors undone in reverse order?)"
    return ""
