"""The audit of a trained flow: is its likelihood a likelihood, and its inverse an inverse?

With the evaluated weights, on held-out samples. Every claimed log-determinant is compared, in float64, with derivatives
that do not use it:

- linear layers, mixers included: `slogdet` of the matrix read off by pushing the identity through, and above D = 4096
  what `harness.trials.audit_layers` says;
- couplings, split priors and ActNorm: vector-Jacobian products (see harness.trials.jacobians); squeezes and
  permutations: that they only move entries, each to a place of its own;
- maps of no such form (autoregressive ones): their whole Jacobian;
- maps whose log-det is an estimate: see harness.trials.audit_estimates;
- the flow: the sum of its parts, the standard normal prior, and where D <= 256 its whole autograd Jacobian;
- preprocessing: the derivative of its closed form, entry by entry, and the log-det that the pipeline hands on.

Beside that: every test event as it was evaluated (harness.trials.audit_events), the flow built anew from its saved
weights, the state of every module before and after the evaluation, the condition numbers of the linear layers, and the
log-likelihood in the flow's precision against float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor

from flows import Dense, Estimated, Permutation
from harness.trials.audit_estimates import bounded, compare_estimates
from harness.trials.audit_events import Events, fresh_round_trips
from harness.trials.audit_layers import DENSE_LIMIT, LayerMaker, chosen_layers, exact_layers, smaller
from harness.trials.conditioning import log_det_and_condition
from harness.trials.evaluation import Evaluation, generator, has_estimates
from harness.trials.jacobians import NotTriangular, autograd_log_det, coupled_log_det
from harness.trials.stochastic_log_det import NotDifferentiable, stochastic_log_det
from layers import InvertibleLinear
from layers.base import push_identity

if TYPE_CHECKING:
    from flows import Flow
    from flows.bijection import Bijection
    from harness.trials.pipeline import Pipeline

LOGDET_LIMIT = 1e-3  # nats per event
INVERSE_LIMIT = 1e-3  # relative
PRECISION_LIMIT = 1e-3  # nats per dimension: the last digit of a table
LINEARITY_LIMIT = 1e-6  # relative, in float64
WHOLE_LIMIT = 256  # D up to which the flow's whole Jacobian is formed
SAMPLES = 8
WHOLE_SAMPLES = 2
SCALES = (1.0, 100.0)  # standard deviations at which a linear layer's inverse is checked


@dataclass
class Audit:
    """The findings; `record()` gives them as a trial keeps them.

    Attributes:
        reasons: one per fault, each with the path of the module.
        logdet_error: the largest absolute difference between a claimed and a derived log-det, or between a
            claimed and a derived log-likelihood, in nats per event, of all checks in float64.
        events: how many test events were examined one by one; `test_events`: of how many.
        batch_error: the largest difference of one event's log-likelihood, as evaluated, from that in batches of 8 in
            another order, in nats per dimension; that of event `batch_worst`. `batch_failures` events exceed the limit.
        reload_error: the largest difference of one event's log-likelihood, as evaluated, from that of a flow built anew
            with the saved weights, in nats per dimension; None where no such flow was given.
        inverse_error: the largest |x - inverse(forward(x))| / max(1, |x|) of the flow in its own precision, that of
            event `inverse_worst`. `inverse_failures` events exceed the limit.
        inverse_error_float64: the same in float64, of the eight events with the largest errors.
        sample_error: the largest |z - forward(inverse(z))| / max(1, |z|) over `samples` fresh normal z, that of number
            `sample_worst`. `sample_failures` exceed the limit; of these the inverse in float64 explodes, beyond 10^6,
            for `sample_exploded`.
        precision_error: the largest difference between the flow's own log-likelihood and float64's, in nats
            per dimension.
        condition: the largest condition number of the audited linear layers, that of `condition_path`.
        linear_layers: how many the flow has.
        audited_layers: how many of them were audited: all, or a sample where that is too much work.
        large_layers: path -> how the log-det of a layer above D = 4096 was checked.
        smallest_fault: the largest over such layers of the smallest log-det error that their check detects, in nats per
            event; None where every audited layer was checked exactly.
        not_audited: path -> reason of each that was to be audited and is beyond what can be.
        estimate_error: of estimated log-dets, the largest difference of the mean of many from the exact value, in nats
            per dimension; None where there are none. `logdet_error` is of what is computed.
        estimate_bias: the sum over blocks of what their series may be off in the mean, in nats per dimension.
        lipschitz: the largest bound on the Lipschitz constant of a residual block, that of `lipschitz_path`.
    """

    reasons: list[str] = field(default_factory=list)
    logdet_error: float = 0.0
    events: int = 0
    test_events: int = 0
    batch_error: float = 0.0
    batch_failures: int = 0
    batch_worst: int | None = None
    reload_error: float | None = None
    inverse_error: float = 0.0
    inverse_failures: int = 0
    inverse_worst: int | None = None
    inverse_error_float64: float = 0.0
    samples: int = 0
    sample_error: float = 0.0
    sample_failures: int = 0
    sample_exploded: int = 0
    sample_worst: int | None = None
    precision_error: float = 0.0
    condition: float = 1.0
    condition_path: str | None = None
    linear_layers: int = 0
    audited_layers: int = 0
    large_layers: dict[str, str] = field(default_factory=dict)
    smallest_fault: float | None = None
    not_audited: dict[str, str] = field(default_factory=dict)
    estimate_error: float | None = None
    estimate_bias: float | None = None
    lipschitz: float | None = None
    lipschitz_path: str | None = None

    @property
    def verdict(self) -> Literal["passed", "failed", "incomplete"]:
        """Incomplete is what did not fail, but holds a layer beyond what can be audited."""
        if self.reasons:
            return "failed"
        return "incomplete" if self.not_audited else "passed"

    def record(self) -> dict[str, Any]:
        """Everything as JSON can hold it: a number that is not finite is None, and its reason is a fault."""
        content = {"verdict": self.verdict, **asdict(self)}
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in content.items()
        }

    def estimate(self, path: str, error: float, allowed: float) -> None:
        """Enter how far the mean of estimates is from the exact log-det, in nats per dimension."""
        self.estimate_error = max(self.estimate_error or 0.0, error)
        if not error <= allowed:
            self.reasons.append(
                f"{path}: the mean of its estimated log-dets is {error:.2g} nats/dim from that of its Jacobian, more "
                f"than {allowed:.2g} (four standard errors and {PRECISION_LIMIT:g})"
            )

    def compare(self, path: str, claimed: Tensor, derived: Tensor, what: str = "log-det") -> None:
        """Hold a claim, (N,) or (), against what was derived, in nats per event."""
        error = _largest(claimed - derived)
        self.logdet_error = max(self.logdet_error, error)
        if error > LOGDET_LIMIT:
            pair = torch.broadcast_tensors(claimed, derived)
            worst = int((pair[0] - pair[1]).abs().nan_to_num(nan=math.inf).argmax())
            one, other = (float(values.flatten()[worst]) for values in pair)
            self.reasons.append(f"{path}: {what} is {one:.6g} nats, but its derivatives give {other:.6g}")


@torch.no_grad()
def audit(
    flow: Flow,
    pipeline: Pipeline,
    evaluation: Evaluation,
    make_layer: LayerMaker | None = None,
    reload: Callable[[], Flow] | None = None,
) -> Audit:
    """Audit a flow on the split that it was evaluated on; the flow itself is left unchanged.

    Args:
        flow: with the weights that were evaluated.
        pipeline: as it was trained and evaluated with.
        evaluation: of the flow; its seed also draws the audit's own noise, probes and choice of layers.
        make_layer: (layer, shape) -> a new layer of the same kind and options on another shape; layers too
            large for a dense matrix are audited on a smaller event with it, and are not audited without it.
        reload: build the flow anew and load the saved weights; None: that is not checked.
    """
    result = Audit()
    seed = evaluation.seed
    raw = pipeline.raw(evaluation.split)[:SAMPLES]
    x, log_det = pipeline.prepare(raw, generator(pipeline.device, seed, "audit noise"))
    probes = generator(torch.device("cpu"), seed, "audit probes")
    flow.eval()
    exact = deepcopy(flow).double()
    wide = x.double()
    _audit_state(result, evaluation)
    events = Events(pipeline, evaluation)
    _audit_batches(result, flow, events)
    if reload is not None:
        _audit_reload(result, reload().eval(), events)
    _audit_preprocessing(result, pipeline, wide, log_det, probes)
    _audit_modules(result, exact, wide, probes, make_layer, seed, x.dtype)
    _audit_whole(result, exact, wide, seed)
    _audit_inverse(result, flow, exact, events)
    used, better = flow.log_prob(x, *_chance(flow, seed)).double(), exact.log_prob(wide, *_chance(flow, seed))
    result.precision_error = _largest(used - better) / pipeline.dim
    if result.precision_error > PRECISION_LIMIT:
        result.reasons.append(
            f"log-likelihood in {_name(x.dtype)} is off by {result.precision_error:.1e} nats/dim against float64"
        )
    return result


def _audit_state(result: Audit, evaluation: Evaluation) -> None:
    """Evaluation must not change the model: the values of later batches would be those of another one."""
    if evaluation.changed:
        names = ", ".join(evaluation.changed[:3]) + (", ..." if len(evaluation.changed) > 3 else "")
        result.reasons.append(f"evaluation changes the state of the flow: {names}")


def _audit_batches(result: Audit, flow: Flow, events: Events) -> None:
    """An event's likelihood must depend neither on its batch nor on the batch's order."""
    found = events.compare_batches(flow)
    result.events, result.test_events = len(found.errors), len(events.evaluation.prior)
    result.batch_error, result.batch_worst = found.worst, found.worst_event
    result.batch_failures = found.beyond(PRECISION_LIMIT)
    if result.batch_failures:
        result.reasons.append(
            f"log-likelihood depends on the batch: for {result.batch_failures} of {result.events} test events it "
            f"differs by more than {PRECISION_LIMIT:g} nats/dim between batches of {events.evaluation.batch}, as "
            f"evaluated, and of 8 in another order, for event {result.batch_worst} by {result.batch_error:.2g}"
        )


def _audit_reload(result: Audit, flow: Flow, events: Events) -> None:
    """Everything that the likelihood rests on must be in the saved weights."""
    found = events.compare_flow(flow)
    result.reload_error = found.worst
    if found.beyond(PRECISION_LIMIT):
        result.reasons.append(
            f"the flow built anew from its saved weights has another log-likelihood, by {found.worst:.2g} nats/dim for "
            f"event {found.worst_event}: something that the map rests on is neither a parameter nor a buffer, or is a "
            "value computed from earlier weights"
        )


def _audit_preprocessing(
    result: Audit, pipeline: Pipeline, x: Tensor, handed_on: Tensor, probes: torch.Generator
) -> None:
    """The closed form's derivative at the very values that `prepare` made, and the log-det that it returned."""
    flat = x.flatten(1)
    if pipeline.permutation is not None:
        flat = flat[:, pipeline.permutation.argsort()]
    values = pipeline.preprocessing.inverse(flat.reshape(x.shape))
    claimed = pipeline.preprocessing(values)[1]
    derived = _derive(result, "preprocessing", partial(_output, pipeline.preprocessing), values, probes)
    if derived is None:
        return
    result.compare("preprocessing", claimed, derived)
    error = _largest(handed_on.double() - derived) / pipeline.dim
    if error > PRECISION_LIMIT:
        result.reasons.append(f"preprocessing: the log-det handed on with the data is off by {error:.1e} nats/dim")


def _audit_modules(
    result: Audit,
    flow: Flow,
    x: Tensor,
    probes: torch.Generator,
    make_layer: LayerMaker | None,
    seed: int,
    used: torch.dtype,
) -> None:
    """Each elementary bijection at its own input, and their sum against the flow."""
    parts = list(flow.trace(x))
    linear = {path: module for path, module, _ in parts if isinstance(module, InvertibleLinear)}
    chosen = chosen_layers(linear, seed)
    exact = exact_layers({path: linear[path] for path in linear if path in chosen}, seed)
    result.linear_layers = len(linear)
    total = x.new_zeros(len(x))
    chance = _chance(flow, seed)
    for path, module, value in parts:
        y, claimed = module(value, *chance) if isinstance(module, Estimated) else module(value)
        total = total + claimed
        if isinstance(module, Estimated):
            _audit_estimate(result, path, module, value, probes)
        elif isinstance(module, Dense):
            _audit_dense(result, path, module, value, claimed)
        elif isinstance(module, InvertibleLinear):
            if path in chosen:
                if path in exact:
                    _audit_linear(result, path, module, value, used)
                else:
                    _audit_large(result, path, module, make_layer, used, probes)
            _audit_scales(result, path, module, value)
        elif y.shape != value.shape or isinstance(module, Permutation):
            if not _moves_entries(module, value, y):
                result.reasons.append(f"{path}: it does not merely move entries")
            result.compare(path, claimed, torch.zeros_like(claimed))
        else:
            derived = _derive(result, path, partial(_output, module), value, probes)
            if derived is not None:
                result.compare(path, claimed, derived)
    result.compare("flow", flow(x, *_chance(flow, seed))[1], total)


def _chance(flow: Flow, seed: int) -> tuple[torch.Generator, ...]:
    """What estimates draw from, if there are any: the same in every pass, so that passes can be compared."""
    return (generator(torch.device("cpu"), seed, "audit estimates"),) if has_estimates(flow) else ()


def _audit_estimate(result: Audit, path: str, module: Estimated, value: Tensor, probes: torch.Generator) -> None:
    """The mean of many estimates against the exact value, on a small event, and the bound that makes it invertible."""
    found = compare_estimates(module, module.map, value[:WHOLE_SAMPLES], WHOLE_LIMIT, probes)
    result.estimate(path, found.error, found.allowance + PRECISION_LIMIT)
    bound, faults = bounded(module, value[:WHOLE_SAMPLES], probes)
    result.reasons += [f"{path}: {fault}" for fault in faults]
    result.estimate_bias = (result.estimate_bias or 0.0) + module.bias(bound)
    if result.lipschitz is None or bound > result.lipschitz:
        result.lipschitz, result.lipschitz_path = bound, path


def _audit_dense(result: Audit, path: str, module: Dense, value: Tensor, claimed: Tensor) -> None:
    dim = value[0].numel()
    if dim > DENSE_LIMIT:
        result.not_audited[path] = f"D = {dim} is beyond {DENSE_LIMIT}, and its Jacobian has no simpler form"
        return
    few = WHOLE_SAMPLES if dim <= WHOLE_LIMIT else 1
    result.compare(path, claimed[:few], autograd_log_det(partial(_output, module), value[:few]))


def _moves_entries(module: Callable[[Tensor], tuple[Tensor, Tensor]], x: Tensor, y: Tensor) -> bool:
    """Whether y is x with its entries moved as the module moves the numbers 0..D-1, each of which stays one."""
    numbers = torch.arange(x[0].numel(), dtype=x.dtype, device=x.device)
    order = module(numbers.reshape(1, *x.shape[1:]))[0].flatten()
    return torch.equal(order.sort().values, numbers) and torch.equal(y.flatten(1), x.flatten(1)[:, order.long()])


def _audit_linear(result: Audit, path: str, layer: InvertibleLinear, value: Tensor, used: torch.dtype) -> None:
    """Compare the log-det with the matrix; check linearity at the flow's own input, and the condition number."""
    matrix = push_identity(layer, dtype=value.dtype)
    y, claimed = layer(value)
    offset = layer(torch.zeros_like(value[:1]))[0]
    expected = (value.flatten(1) @ matrix.T).reshape(y.shape) + offset
    if not _largest((y - expected) / expected.abs().clamp(min=1.0)) <= LINEARITY_LIMIT:
        result.reasons.append(f"{path}: it is not the linear map of its own matrix")
    log_det, condition = log_det_and_condition(matrix)
    result.compare(path, claimed, log_det)
    result.audited_layers += 1
    _enter_condition(result, path, condition, used)
    if layer.dim > DENSE_LIMIT:
        result.large_layers[path] = f"exactly, by slogdet of its matrix, D = {layer.dim}"


def _audit_large(
    result: Audit,
    path: str,
    layer: InvertibleLinear,
    make_layer: LayerMaker | None,
    used: torch.dtype,
    probes: torch.Generator,
) -> None:
    """Audit a layer whose matrix is too large: exactly on a smaller event, and stochastically on its own."""
    small, reason = smaller(layer, make_layer)
    if small is None:
        result.not_audited[path] = reason
        return
    try:
        estimate = stochastic_log_det(layer, probes)
    except NotDifferentiable as error:
        result.not_audited[path] = f"D = {layer.dim} is beyond {DENSE_LIMIT}, and {error}"
        return
    tensor = next((t for t in (*small.parameters(), *small.buffers()) if t.is_floating_point()), None)
    device = None if tensor is None else tensor.device
    start = torch.Generator().manual_seed(0)
    value = torch.randn(SAMPLES, *small.shape, generator=start, dtype=torch.float64).to(device)
    _audit_linear(result, path, small, value, used)
    _enter_condition(result, path, estimate.condition, used)
    claimed = float(layer(torch.zeros(1, *layer.shape, dtype=torch.float64, device=device))[1].flatten()[0])
    result.smallest_fault = max(result.smallest_fault or 0.0, estimate.allowance)
    result.large_layers[path] = (
        f"exactly on a stand-in of shape {small.shape}, and at its own shape, D = {layer.dim}, by a stochastic check "
        f"that detects an error of {estimate.allowance:.3g} nats"
    )
    if estimate.excludes(claimed):
        result.logdet_error = max(result.logdet_error, abs(claimed - estimate.value))
        result.reasons.append(
            f"{path}: log-det is {claimed:.6g} nats, but a stochastic estimate gives {estimate.value:.6g}, with "
            f"{estimate.allowance:.3g} allowed (five standard errors)"
        )


def _audit_scales(result: Audit, path: str, layer: InvertibleLinear, like: Tensor) -> None:
    """The inverse of a linear map is linear: it holds at any scale, whatever values the data happen to have."""
    start = torch.Generator().manual_seed(0)
    y = torch.randn(2, *layer.shape, generator=start, dtype=torch.float64).to(like)
    for scale in SCALES:
        try:
            error = _largest(layer(layer.inverse(scale * y))[0] - scale * y) / scale
        except Exception:  # third-party code may raise anything: an inverse that raises is not an inverse
            error = math.inf
        if not error <= INVERSE_LIMIT:
            result.reasons.append(
                f"{path}: y -> x -> y is off by {error:.1e} (relative) for y of standard deviation {scale:g}"
            )
            return


def _enter_condition(result: Audit, path: str, condition: float, used: torch.dtype) -> None:
    if result.condition_path is None or condition > result.condition:
        result.condition, result.condition_path = condition, path
    if condition * torch.finfo(used).eps >= 1:
        result.reasons.append(f"{path}: condition {condition:.1e} makes it singular in {_name(used)}")


def _audit_whole(result: Audit, flow: Flow, x: Tensor, seed: int) -> None:
    """The prior's closed form, and the whole Jacobian where it is small."""
    z, claimed = flow(x, *_chance(flow, seed))
    prior = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(1)
    result.compare("flow", flow.log_prob(x, *_chance(flow, seed)), prior + claimed, "log-likelihood")
    if flow.dim <= WHOLE_LIMIT and has_estimates(flow):
        (chance,) = _chance(flow, seed)
        found = compare_estimates(flow, partial(_output, flow), x[:WHOLE_SAMPLES], flow.dim, chance)
        result.estimate("flow", found.error, found.allowance + PRECISION_LIMIT)
    elif flow.dim <= WHOLE_LIMIT:
        few = x[:WHOLE_SAMPLES]
        result.compare("flow", claimed[: len(few)], autograd_log_det(partial(_output, flow), few))


def _audit_inverse(result: Audit, flow: Flow, exact: Flow, events: Events) -> None:
    """Round trips of every event and of fresh z; where one fails, the module whose own round trip is worst is named."""
    found = events.round_trips(flow)
    worst = events.inputs[found.largest(SAMPLES).to(events.inputs.device)]
    allowed = max(INVERSE_LIMIT, result.condition * torch.finfo(worst.dtype).eps)
    result.inverse_error, result.inverse_worst = found.worst, found.worst_event
    result.inverse_failures = found.beyond(allowed)
    result.inverse_error_float64 = round_trip_error(exact, worst.double())
    count = f"{result.inverse_failures} of {len(found.errors)} test events"
    if result.inverse_failures:
        result.reasons.append(_inverse_reason(flow, worst[:1], found.worst, count))
    if not result.inverse_error_float64 <= max(INVERSE_LIMIT, result.condition * torch.finfo(torch.float64).eps):
        result.reasons.append(_inverse_reason(exact, worst.double(), result.inverse_error_float64, "the worst of them"))
    fresh = fresh_round_trips(flow, worst.dtype, worst.device, result.test_events, events.evaluation.seed)
    result.samples, result.sample_error, result.sample_worst = len(fresh.errors), fresh.worst, fresh.worst_event
    result.sample_failures = fresh.beyond(allowed)
    if not result.sample_failures:
        return
    # Far from the data the inverse of a sound flow may explode (Behrmann et al., AISTATS 2021), which spoils samples
    # but no likelihood: it is recorded. An inverse that is wrong is wrong in float64, at values of ordinary size.
    wide = fresh_round_trips(exact, torch.float64, worst.device, result.test_events, events.evaluation.seed)
    result.sample_exploded = int(wide.exploded.sum())
    wrong = int((~(wide.errors <= INVERSE_LIMIT) & ~wide.exploded).sum())
    if wrong:
        result.reasons.append(
            f"z -> x -> z is off by up to {wide.worst:.1e} (relative) in float64, for {wrong} of {len(wide.errors)} "
            "fresh z ~ N(0, I) whose x is of ordinary size"
        )


def _inverse_reason(flow: Flow, x: Tensor, error: float, count: str) -> str:
    own = {path: round_trip_error(cast("Bijection", module), value) for path, module, value in flow.trace(x)}
    worst = max(own, key=lambda path: own[path])
    return (
        f"{worst}: x -> z -> x is off by {error:.1e} (relative) in {_name(x.dtype)}, for {count}; "
        f"this module alone by {own[worst]:.1e}, more than any other"
    )


def round_trip_error(bijection: Bijection, x: Tensor) -> float:
    """Return max |x - inverse(forward(x))| / max(1, |x|); inf where it is not finite or the inverse raises."""
    try:
        back = bijection.inverse(bijection(x)[0])
    except Exception:  # third-party code may raise anything: an inverse that raises is not an inverse
        return math.inf
    return _largest((back - x) / x.abs().clamp(min=1.0))


def _derive(
    result: Audit, path: str, function: Callable[[Tensor], Tensor], x: Tensor, probes: torch.Generator
) -> Tensor | None:
    try:
        return coupled_log_det(function, x, probes)
    except NotTriangular as finding:
        result.reasons.append(f"{path}: {finding}")
        return None


def _output(bijection: Callable[[Tensor], tuple[Tensor, Tensor]], x: Tensor) -> Tensor:
    return bijection(x)[0]


def _largest(difference: Tensor) -> float:
    """max |difference|; inf where an entry is not a number, which no limit would stop."""
    return float(difference.abs().nan_to_num(nan=math.inf, posinf=math.inf).max())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
