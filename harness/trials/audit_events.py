"""The part of an audit that looks at every test event: as evaluated, there and back, and from fresh normal z.

A map that treats an event differently in a large batch, in another order or in another mode has no likelihood, and the
mean over a split can hide it. So the log-density of each event, as the evaluation computed it, is compared with that in
batches of 8 in random order, and each event is mapped to z and back. The largest difference of a single event counts.

Every event is examined up to `MOST_EVENTS`, and as far as `SECONDS` allow in each of the two comparisons; the order is
random, so what is examined of a larger split is a random sample of it, and the record says how many events it holds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from flows import Flow
from harness.trials.evaluation import Evaluation, evaluated_inputs, generator, has_estimates
from harness.trials.pipeline import Pipeline

MOST_EVENTS = 10_000
SECONDS = 60.0  # for each comparison, after its first batch
SMALL_BATCH = 8
FRESH = 256  # fresh normal z at most
EXPLODED = 1e6  # |x| beyond which float64 itself has lost the digits that a round trip compares; data lie within +-1


@dataclass(frozen=True)
class EventErrors:
    """The errors of single events.

    Attributes:
        errors: one per event examined, float64 on the CPU; inf where a value is not finite or the map raised.
        events: the number of each event in its split (of fresh z: in their batch), in the same order.
    """

    errors: Tensor
    events: Tensor

    @property
    def worst(self) -> float:
        """The largest error."""
        return float(self.errors.max())

    @property
    def worst_event(self) -> int:
        """The event with the largest error."""
        return int(self.events[self.errors.argmax()])

    def beyond(self, limit: float) -> int:
        """Return how many events exceed a limit."""
        return int((~(self.errors <= limit)).sum())

    def largest(self, count: int) -> Tensor:
        """Return the positions of the events with the largest errors, worst first."""
        return self.errors.argsort(descending=True, stable=True)[:count]


class Events:
    """The events of an evaluation, in random order, with the inputs that the evaluation gave the flow.

    Attributes:
        inputs: (n, *shape) in the evaluation's dtype.
        events: the number of each in its split, (n,).
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
        inputs = evaluated_inputs(pipeline, evaluation.split, evaluation.batch, evaluation.seed, evaluation.dtype)
        start = 0
        for x, _ in inputs:
            places = place[start : start + len(x)]
            wanted = places >= 0
            self.inputs[places[wanted].to(x.device)] = x[wanted.to(x.device)]
            start += len(x)

    def compare_batches(self, flow: Flow) -> EventErrors:
        """Compare log p(x), as evaluated, with that in batches of 8 in random order, in nats per dimension."""
        return self._examine(lambda x, events: self._difference(flow, x, events), SMALL_BATCH)

    def compare_flow(self, flow: Flow) -> EventErrors:
        """Compare log p(x), as evaluated, with that under another flow for one batch, in nats per dimension."""
        events = self.events[: self.evaluation.batch]
        return EventErrors(_finite(self._difference(flow, self.inputs[: len(events)], events)), events)

    def round_trips(self, flow: Flow) -> EventErrors:
        """Compare x with inverse(forward(x)): the largest |difference| / max(1, |x|) of each event."""
        return self._examine(lambda x, _: _round_trip(lambda: flow.inverse(flow(x)[0]), x), self.evaluation.batch)

    def _difference(self, flow: Flow, x: Tensor, events: Tensor) -> Tensor:
        """Of a flow with estimated log-determinants, log N(z; 0, I) alone is compared: estimates differ by chance."""
        prior, log_det = flow.terms(x)
        value, known = prior.double().cpu(), self.evaluation.prior[events]
        if not has_estimates(flow):
            value, known = value + log_det.double().cpu(), known + self.evaluation.log_det[events]
        return (value - known).abs() / self.dim

    def _examine(self, errors: Callable[[Tensor, Tensor], Tensor], batch: int) -> EventErrors:
        found: list[Tensor] = []
        done = 0
        for part in _in_time(self.events.split(batch)):
            found.append(_finite(errors(self.inputs[done : done + len(part)], part)))
            done += len(part)
        return EventErrors(torch.cat(found), self.events[:done])


@dataclass(frozen=True)
class FreshErrors(EventErrors):
    """The errors of fresh z.

    Attributes:
        exploded: which of them the inverse maps beyond `EXPLODED`, or to values that are not finite, (n,).
    """

    exploded: Tensor


def fresh_round_trips(flow: Flow, dtype: torch.dtype, device: torch.device, count: int, seed: int) -> FreshErrors:
    """Compare z with forward(inverse(z)) for z ~ N(0, I): the largest |difference| / max(1, |z|) of each.

    The inverse comes first and no forward pass of the same events before it, so an inverse that repeats what forward
    was last given does not pass.
    """
    count = min(count, FRESH)
    noise = generator(torch.device("cpu"), seed, "audit fresh z")
    z = torch.randn(count, flow.dim, generator=noise, dtype=torch.float64).to(device=device, dtype=dtype)
    largest = torch.full((count,), math.inf)

    def back() -> Tensor:
        x = flow.inverse(z)
        largest.copy_(x.abs().flatten(1).amax(1).nan_to_num(nan=math.inf))
        return flow(x)[0]

    errors = _finite(_round_trip(back, z))
    return FreshErrors(errors, torch.arange(count), largest > EXPLODED)


def _round_trip(back: Callable[[], Tensor], start: Tensor) -> Tensor:
    """The largest relative error of each event, (N,); inf where the map raises."""
    try:
        difference = (back() - start) / start.abs().clamp(min=1.0)
    except Exception:  # third-party code may raise anything: an inverse that raises is not an inverse
        return torch.full((len(start),), math.inf)
    return difference.abs().nan_to_num(nan=math.inf, posinf=math.inf).flatten(1).amax(1).double().cpu()


def _finite(errors: Tensor) -> Tensor:
    return errors.double().cpu().nan_to_num(nan=math.inf, posinf=math.inf)


def _in_time(parts: tuple[Tensor, ...]) -> Iterator[Tensor]:
    """Yield parts until the time is over, the first always."""
    begin = time.monotonic()
    for number, part in enumerate(parts):
        if number and time.monotonic() - begin > SECONDS:
            return
        yield part
