"""The findings of an audit, in the form of a trial's record, and the limits for passing."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from harness.core.records import AuditVerdict, finite

LOGDET_LIMIT = 1e-3  # nats per event
PRECISION_LIMIT = 1e-3  # nats per dimension: the last digit of a table
VALIDATION_LIMIT = 1e-4  # nats per dimension, of a mean over a split: a tenth of that


@dataclass(frozen=True)
class EventErrors:
    """The errors of single events."""

    errors: Tensor  # one per checked event, float64 on the CPU; inf if a value is not finite or the map raises
    events: Tensor  # the index of each event in its split (for fresh z: in their batch), in the same order

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


@dataclass
class Audit:
    """The findings of an audit; `record()` converts them for a trial's record.

    Attributes:
        reasons: one per fault, each with the path of the module.
        logdet_error: the largest absolute difference between a claimed and a derived log-det, or between a
            claimed and a derived log-likelihood, in nats per event, of all checks in float64.
        events: number of test events that were checked one by one; `test_events`: number of all test events.
        batch_error: the largest difference of one event's log-likelihood, as evaluated, from that in batches of 8 in
            another order, in nats per dimension, reached by event `batch_worst`. `batch_failures` events exceed the
            limit.
        applied_error: the largest error of y against W x + b, of one event as evaluated at one linear layer, relative
            (see `harness.audit.applied`), of event `applied_worst` at `applied_path`. `applied_failures` events exceed
            the limit at some layer.
        reload_error: the largest difference of one event's log-likelihood, as evaluated, from that of a flow rebuilt
            with the saved weights, in nats per dimension; None if no such flow was given.
        validation_error: the difference of the reported validation value from that of the kept weights, in nats per
            dimension; None if none was given.
        inverse_error: the largest |x - inverse(forward(x))| / max(1, |x|) of the flow in its precision, reached by
            event `inverse_worst`. `inverse_failures` events exceed the limit.
        inverse_error_float64: the same in float64, of the eight events with the largest errors.
        sample_error: the largest |z - forward(inverse(z))| / max(1, |z|) over `samples` fresh normal z, reached by
            number `sample_worst`. `sample_failures` exceed the limit; for `sample_exploded` of these the inverse in
            float64 explodes, beyond 10^6.
        precision_error: the largest difference between the log-likelihood in the flow's precision and in float64, in
            nats per dimension.
        condition: the largest condition number of the audited linear layers, reached by `condition_path`.
        linear_layers: number of linear layers in the flow.
        audited_layers: number of them that were audited: all, or a sample if all would be too much work.
        stepped_layers: number of linear layers whose training step was compared with float64.
        large_layers: path -> how the log-det of a layer above D = 4096 was checked.
        smallest_fault: the largest over such layers of the smallest log-det error that their check detects, in nats per
            event; None if every audited layer was checked exactly.
        not_audited: path -> reason, for each part that should be audited but cannot be.
        estimate_error: for estimated log-dets, the largest difference of the mean of many from the exact value, in nats
            per dimension; None without such. `logdet_error` covers the computed ones.
        estimate_bias: the sum over blocks of the largest bias of their truncated series, in nats per dimension.
        lipschitz: the largest bound on the Lipschitz constant of a residual block, reached by `lipschitz_path`.
    """

    reasons: list[str] = field(default_factory=list)
    logdet_error: float = 0.0
    events: int = 0
    test_events: int = 0
    batch_error: float = 0.0
    batch_failures: int = 0
    batch_worst: int | None = None
    applied_error: float = 0.0
    applied_failures: int = 0
    applied_worst: int | None = None
    applied_path: str | None = None
    reload_error: float | None = None
    validation_error: float | None = None
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
    stepped_layers: int = 0
    large_layers: dict[str, str] = field(default_factory=dict)
    smallest_fault: float | None = None
    not_audited: dict[str, str] = field(default_factory=dict)
    estimate_error: float | None = None
    estimate_bias: float | None = None
    lipschitz: float | None = None
    lipschitz_path: str | None = None

    @property
    def verdict(self) -> AuditVerdict:
        """Return "failed", "passed", or "incomplete" if nothing failed but a layer could not be audited."""
        if self.reasons:
            return "failed"
        return "incomplete" if self.not_audited else "passed"

    def record(self) -> dict[str, Any]:
        """Return all findings as JSON values: a number that is not finite becomes None, and its reason is a fault."""
        content = {"verdict": self.verdict, **asdict(self)}
        return {name: finite(value) if isinstance(value, float) else value for name, value in content.items()}

    def worst(self, check: str, errors: EventErrors, limit: float) -> int:
        """Enter `<check>_error`, the largest of an event, `<check>_worst`, the event, and `<check>_failures` beyond the
        limit; return these.
        """
        failures = errors.beyond(limit)
        for name, value in (("error", errors.worst), ("worst", errors.worst_event), ("failures", failures)):
            setattr(self, f"{check}_{name}", value)
        return failures

    def estimate(self, path: str, error: float, allowance: float) -> None:
        """Enter the difference of the mean of estimates from the exact log-det, in nats per dimension."""
        allowed = allowance + PRECISION_LIMIT
        self.estimate_error = max(self.estimate_error or 0.0, error)
        if not error <= allowed:
            self.reasons.append(
                f"{path}: the mean of its estimated log-dets is {error:.2g} nats/dim from that of its Jacobian, more "
                f"than {allowed:.2g} (four standard errors and {PRECISION_LIMIT:g})"
            )

    def compare(self, path: str, claimed: Tensor, derived: Tensor, what: str = "log-det") -> None:
        """Compare a claim, (N,) or (), with the derived value, in nats per event."""
        error = largest(claimed - derived)
        self.logdet_error = max(self.logdet_error, error)
        if error > LOGDET_LIMIT:
            pair = torch.broadcast_tensors(claimed, derived)
            worst = int((pair[0] - pair[1]).abs().nan_to_num(nan=math.inf).argmax())
            claim, truth = (float(values.flatten()[worst]) for values in pair)
            self.reasons.append(f"{path}: {what} is {claim:.6g} nats, but its derivatives give {truth:.6g}")


def largest(difference: Tensor) -> float:
    """Return max |difference|; inf if an entry is not a number, so that it exceeds every limit."""
    return float(difference.abs().nan_to_num(nan=math.inf, posinf=math.inf).max())


def dtype_name(dtype: torch.dtype) -> str:
    """Return "float32" for torch.float32."""
    return str(dtype).removeprefix("torch.")
