"""The part of the audit that checks every test event: as evaluated, in round trips, and from fresh normal z.

A map that treats an event differently in a large batch, in another order or in another mode has no likelihood, and the
mean over a split can hide that. So the log-density of each event, as the evaluation computed it, is compared with that
in batches of 8 in random order, and each event is mapped to z and back. The largest difference of an event counts.

All events are checked up to `MOST_EVENTS`, and as far as `SECONDS` allow in each comparison; the order is
random, so the checked part of a larger split is a random sample of it, and the record states its size.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import Tensor

from flows import Flow
from flows.protocol import Bijection
from harness.audit.findings import PRECISION_LIMIT, VALIDATION_LIMIT, Audit, EventErrors, dtype_name
from harness.audit.module_state import used
from harness.evaluation.evaluation import Evaluation, evaluate, evaluated_inputs, generator, has_estimates
from harness.pipeline.pipeline import Pipeline
from harness.timing.operations import INVERSE_LIMIT

MOST_EVENTS = 10_000
SECONDS = 60.0  # limit of each comparison, after its first batch
SMALL_BATCH = 8
WORST = 8  # events whose round trip is repeated in float64
FRESH = 256  # largest number of fresh normal z
EXPLODED = 1e6  # |x| beyond which float64 itself loses the digits that a round trip compares; data are within +-1


class Events:
    """The events of an evaluation, in random order, with the inputs that the evaluation gave the flow.

    Attributes:
        inputs: (n, *shape) in the evaluation's dtype.
        events: the index of each in its split, (n,).
    """

    def __init__(self, pipeline: Pipeline, evaluation: Evaluation) -> None:
        self.evaluation = evaluation
        self.dim = pipeline.dim
        count = len(evaluation.prior)
        order = torch.randperm(count, generator=generator(torch.device("cpu"), evaluation.seed, "audit order"))
        self.events = order[:MOST_EVENTS]
        place = torch.full((count,), -1)
        place[self.events] = torch.arange(len(self.events))
        self.inputs = torch.empty(len(self.events), *pipeline.shape, dtype=evaluation.dtype, device=pipeline.device)
        given = evaluated_inputs(pipeline, evaluation.split, evaluation.batch, evaluation.seed, evaluation.dtype)
        for (x, _), places in zip(given, place.split(evaluation.batch), strict=True):
            wanted = places >= 0
            self.inputs[places[wanted].to(x.device)] = x[wanted.to(x.device)]

    def compare_batches(self, flow: Flow, batches: Iterator[tuple[Tensor, Tensor]] | None = None) -> EventErrors:
        """Compare log p(x), as evaluated, with that in other batches (of 8 in random order), in nats per dimension."""

        def difference(x: Tensor, events: Tensor) -> Tensor:
            prior, log_det = flow.terms(x)
            value, evaluated = prior.double().cpu(), self.evaluation.prior[events]
            if not has_estimates(flow):  # estimates of log-dets vary randomly, so only log N(z; 0, I) is compared
                value, evaluated = value + log_det.double().cpu(), evaluated + self.evaluation.log_det[events]
            return (value - evaluated).abs() / self.dim

        return _examine(difference, self._batches(SMALL_BATCH) if batches is None else batches)

    def round_trips(self, flow: Flow) -> EventErrors:
        """Compare x with inverse(forward(x)): the largest |difference| / max(1, |x|) of each event."""
        batches = self._batches(self.evaluation.batch)
        return _examine(lambda x, _: _round_trip(lambda: flow.inverse(flow(x)[0]), x), batches)

    def evaluated(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs and events in the batches of the evaluation (of a sampled split, in batches of their size)."""
        return self._batches(self.evaluation.batch, self.events.argsort())

    def _batches(self, size: int, order: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs and events in batches, in random or another order, as far as `SECONDS` allow."""
        inputs = self.inputs if order is None else self.inputs[order.to(self.inputs.device)]
        events = self.events if order is None else self.events[order]
        begin = time.monotonic()
        for number, batch in enumerate(zip(inputs.split(size), events.split(size), strict=True)):
            if number and time.monotonic() - begin > SECONDS:
                break
            yield batch


def _examine(errors: Callable[[Tensor, Tensor], Tensor], batches: Iterator[tuple[Tensor, Tensor]]) -> EventErrors:
    values, events = zip(*((_finite(errors(x, events)), events) for x, events in batches), strict=True)
    return EventErrors(torch.cat(values), torch.cat(events))


def fresh_round_trips(flow: Flow, like: Tensor, count: int, seed: int) -> tuple[EventErrors, Tensor]:
    """Compare z with forward(inverse(z)) for z ~ N(0, I): the largest |difference| / max(1, |z|) of each.

    The inverse comes first, without a forward pass of the same events before it, so that an inverse that returns the
    last input of forward does not pass.

    Returns:
        The errors, and whether the inverse maps each z beyond `EXPLODED` or to values that are not finite, (count,).
    """
    count = min(count, FRESH)
    noise = generator(torch.device("cpu"), seed, "audit fresh z")
    z = torch.randn(count, flow.dim, generator=noise, dtype=torch.float64).to(like)
    size = torch.full((count,), math.inf)

    def back() -> Tensor:
        x = flow.inverse(z)
        size.copy_(x.abs().flatten(1).amax(1).nan_to_num(nan=math.inf))
        return flow(x)[0]

    return EventErrors(_round_trip(back, z), torch.arange(count)), size > EXPLODED


def _round_trip(back: Callable[[], Tensor], start: Tensor) -> Tensor:
    """Return the largest relative error of each event, (N,); inf if the map raises."""
    try:
        difference = (back() - start) / start.abs().clamp(min=1.0)
    except Exception:  # third-party code may raise anything: an inverse that raises is not an inverse
        return torch.full((len(start),), math.inf)
    return _finite(difference.abs().flatten(1)).amax(1)


def _finite(errors: Tensor) -> Tensor:
    return errors.double().cpu().nan_to_num(nan=math.inf, posinf=math.inf)


def audit_state(result: Audit, flow: Flow, evaluation: Evaluation, x: Tensor) -> None:
    """Check that evaluation does not change the model: the values of later batches would be of another model."""
    if evaluation.changed is None:
        raise ValueError("the evaluation did not compare the state of the flow; audit one with compare=True")
    if changed := used(flow, evaluation.changed, x):
        names = ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
        result.reasons.append(f"evaluation changes the state of the flow: {names}")


def audit_batches(result: Audit, flow: Flow, events: Events) -> None:
    """Check that an event's likelihood depends neither on its batch nor on the batch's order."""
    errors = events.compare_batches(flow)
    result.events, result.test_events = len(errors.errors), len(events.evaluation.prior)
    if result.worst("batch", errors, PRECISION_LIMIT):
        result.reasons.append(
            f"log-likelihood depends on the batch: for {result.batch_failures} of {result.events} test events it "
            f"differs by more than {PRECISION_LIMIT:g} nats/dim between batches of {events.evaluation.batch}, as "
            f"evaluated, and of 8 in another order, for event {result.batch_worst} by {result.batch_error:.2g}"
        )


def audit_reload(result: Audit, flow: Flow, events: Events) -> None:
    """Check that the saved weights contain everything that the likelihood depends on."""
    errors = events.compare_batches(flow, events.evaluated())
    result.reload_error = errors.worst
    if errors.beyond(PRECISION_LIMIT):
        result.reasons.append(
            f"the flow rebuilt from its saved weights has a different log-likelihood, by {errors.worst:.2g} nats/dim "
            f"for event {errors.worst_event}: something that the map depends on is neither a parameter nor a buffer, "
            "or is a value computed from earlier weights"
        )


def audit_validation(result: Audit, flow: Flow, pipeline: Pipeline, evaluation: Evaluation, reported: float) -> None:
    """Check that the value by which validation chose the weights is that of the kept ones.

    A layer that keeps values computed from earlier weights is validated with those. `reported` is the lowest validation
    value of training, in the data's unit; an `evaluation` of the validation split is not repeated.
    """
    if evaluation.split != "validation":
        batch, seed = evaluation.batch, evaluation.seed
        evaluation = evaluate(flow, pipeline, "validation", 1, batch, seed, evaluation.dtype, compare=False)
    again = getattr(evaluation, pipeline.unit)
    nats = math.log(2) if pipeline.unit == "bits_per_dim" else 1.0
    result.validation_error = abs(again - reported) * nats
    if not result.validation_error <= VALIDATION_LIMIT:
        result.reasons.append(
            f"validation: the reported {reported:.6g} {pipeline.unit} is not that of the kept weights, which give "
            f"{again:.6g}: training validated with values computed from earlier weights, or changed the kept ones"
        )


def audit_round_trips(result: Audit, flow: Flow, events: Events) -> tuple[Tensor, float]:
    """Check round trips of every event; for a failure, name the module with the worst round trip.

    Returns:
        The inputs with the largest errors, and the error that is allowed.
    """
    errors = events.round_trips(flow)
    order = errors.errors.argsort(descending=True, stable=True)
    worst = events.inputs[order[:WORST].to(events.inputs.device)]
    allowed = max(INVERSE_LIMIT, result.condition * torch.finfo(worst.dtype).eps)
    if result.worst("inverse", errors, allowed):
        count = f"{result.inverse_failures} of {len(errors.errors)} test events"
        result.reasons.append(_inverse_reason(flow, worst[:1], errors.worst, count))
    return worst, allowed


def audit_inverse(result: Audit, flow: Flow, exact: Flow, events: Events) -> None:
    """Check round trips of every event, of the worst ones in float64, and of fresh z."""
    worst, allowed = audit_round_trips(result, flow, events)
    result.inverse_error_float64 = round_trip_error(exact, worst.double())
    if not result.inverse_error_float64 <= max(INVERSE_LIMIT, result.condition * torch.finfo(torch.float64).eps):
        result.reasons.append(_inverse_reason(exact, worst.double(), result.inverse_error_float64, "the worst of them"))
    seed = events.evaluation.seed
    fresh, _ = fresh_round_trips(flow, worst, result.test_events, seed)
    result.samples = len(fresh.errors)
    if not result.worst("sample", fresh, allowed):
        return
    # Far from the data the inverse of a correct flow may explode (Behrmann et al., AISTATS 2021), which spoils samples
    # but no likelihood: it is recorded. An inverse that is wrong is wrong in float64, at values of ordinary size.
    wide, exploded = fresh_round_trips(exact, worst.double(), result.test_events, seed)
    result.sample_exploded = int(exploded.sum())
    wrong = int((~(wide.errors <= INVERSE_LIMIT) & ~exploded).sum())
    if wrong:
        result.reasons.append(
            f"z -> x -> z is off by up to {wide.worst:.1e} (relative) in float64, for {wrong} of {len(wide.errors)} "
            "fresh z ~ N(0, I) whose x is of ordinary size"
        )


def _inverse_reason(flow: Flow, x: Tensor, error: float, count: str) -> str:
    alone = {path: round_trip_error(cast(Bijection, module), value) for path, module, value in flow.trace(x)}
    worst = max(alone, key=lambda path: alone[path])
    return (
        f"{worst}: x -> z -> x is off by {error:.1e} (relative) in {dtype_name(x.dtype)}, for {count}; "
        f"this module alone by {alone[worst]:.1e}, more than any other"
    )


def round_trip_error(bijection: Bijection, x: Tensor) -> float:
    """Return max |x - inverse(forward(x))| / max(1, |x|); inf if it is not finite or the inverse raises."""
    return float(_round_trip(lambda: bijection.inverse(bijection(x)[0]), x).max())
