"""The part of the audit that compares what a linear layer does to every event, as evaluated, with its audited map.

A layer whose matrix and log-det are right on a few events may treat other events differently. So each layer's y at its
true input, in the evaluated batch and precision, is compared with W x + b for all events, by random functionals u:

    <u, y> = <W^T u, x> + <u, b>.

They cost O(D) per event. A wrong y differs in each of them by the norm of its error times a standard normal number. The
root mean square of eight estimates that norm; an error of ten times the limit escapes with a probability of 1e-7. The
log-det must have shape () and be the audited one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from flows import Flow
from harness.audit.events import Events
from harness.audit.findings import LOGDET_LIMIT, PRECISION_LIMIT, Audit
from harness.audit.stochastic_log_det import transposed
from layers import InvertibleLinear

APPLIED_LIMIT = 1e-5  # relative for y, nats per dimension for the log-det: float32 makes errors of 1e-7
FUNCTIONALS = 8


@dataclass(frozen=True)
class AuditedMap:
    """W and b of a layer as functionals u see them, float64, and its log-det."""

    functionals: Tensor  # u, standard normal, (8, D)
    pulled: Tensor  # W^T u, (8, D)
    offset: Tensor  # b, (D,)
    log_det: float  # log|det W| in nats
    condition: float | None  # of W, if it is known

    def errors(self, x: Tensor, y: Tensor) -> Tensor:
        """Return |y - W x - b| of each event, estimated, relative to |x| + |y| + |b|: (N,), float64."""
        x, y = x.double().flatten(1), y.double().flatten(1)
        difference = (y - self.offset) @ self.functionals.T - x @ self.pulled.T
        size = x.norm(dim=1) + y.norm(dim=1) + self.offset.norm()
        return difference.square().mean(1).sqrt() / size.clamp(min=torch.finfo(size.dtype).tiny)


def audited_map(
    layer: InvertibleLinear, log_det: Tensor, matrix: Tensor | None, condition: float | None, draws: torch.Generator
) -> AuditedMap:
    """Return the map of a layer in float64, with the log-det that it claims.

    Args:
        layer: the layer, in float64.
        log_det, condition: of the result.
        matrix: its W, (D, D); None: W^T u comes from vector-Jacobian products of a small batch.
        draws: draws the functionals, on the CPU.

    Raises:
        NotDifferentiable: without a matrix, and vector-Jacobian products fail.
    """
    u = torch.randn(FUNCTIONALS, layer.dim, generator=draws, dtype=torch.float64).to(log_det.device)
    pulled = transposed(layer, u) if matrix is None else (matrix.t() @ u.T).T
    offset = layer(u.new_zeros(1, *layer.shape))[0].flatten()
    return AuditedMap(u, pulled, offset, float(log_det.flatten()[0]), condition)


def audit_applied(result: Audit, flow: Flow, maps: dict[str, AuditedMap], events: Events) -> None:
    """Compare y and log-det of each layer in `maps`, for every event as evaluated, with its audited map.

    The condition number in `result` stands for an unknown one of a layer.
    """
    if not maps:
        return
    eps = torch.finfo(events.inputs.dtype).eps
    failed = torch.zeros(len(events.evaluation.prior), dtype=torch.bool)
    faults: dict[str, str] = {}
    for x, numbers in events.evaluated():
        for path, module, value in flow.trace(x):
            if path not in maps:
                continue
            exact = maps[path]
            y, log_det = module(value)
            errors = exact.errors(value, y).cpu().nan_to_num(nan=math.inf)
            rounding = (exact.condition or result.condition) * eps  # of products of factors that nearly cancel
            allowed = max(APPLIED_LIMIT, min(rounding, PRECISION_LIMIT))
            failed[numbers[~(errors <= allowed)]] = True
            worst = int(errors.argmax())
            if result.applied_worst is None or errors[worst] > result.applied_error:
                result.applied_error, result.applied_worst = float(errors[worst]), int(numbers[worst])
                result.applied_path = path
            fault = ""
            if log_det.ndim:
                fault = f"log-det has shape {tuple(log_det.shape)}, not ()"
            elif not abs(float(log_det) - exact.log_det) <= max(LOGDET_LIMIT, allowed * value[0].numel()):
                fault = f"log-det is {float(log_det):.6g} nats, the audited one {exact.log_det:.6g},"
            if fault:
                faults.setdefault(path, f"{path}: {fault} in an evaluated batch of {len(x)}")
    result.applied_failures = int(failed.sum())
    result.reasons += faults.values()
    if result.applied_failures:
        result.reasons.append(
            f"{result.applied_path}: y is not W x + b of its own matrix for event {result.applied_worst}, as evaluated "
            f"in a batch of {events.evaluation.batch}: off by {result.applied_error:.2g} (relative); "
            f"{result.applied_failures} of {len(events.events)} {events.evaluation.split} events have such a layer"
        )
