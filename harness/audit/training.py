"""The audit of the training itself: at the kept weights, a step as training takes it.

A layer may do something else in training than what is evaluated: another map or log-det in train(), gradients that are
wrong in the batches or the precision of training, weights that move without the optimiser. So each linear layer takes
a step (`harness.audit.training_step`) on its input for a batch of the training split, and then the whole flow takes
one by `Updates`, as training does:

- the gradients of the loss by all parameters are those of a new flow in float64 with the same weights, which receives
  few events at a time, and has no hook of a parameter. Where the input of a ReLU is zero but for rounding, its slope in
  float32 may be the other one, which shows in a gradient to which few events contribute. So a gradient is wrong if
  there is a wrong one for the same events moved a little as well;
- the weights are afterwards what Adam computes from these gradients;
- nothing else moves.

The trained flow itself takes the steps, as training may have left traces in it, and gets its weights back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from copy import deepcopy
from typing import cast

import torch
from torch import Tensor, nn

from flows import Flow
from harness.audit.findings import Audit
from harness.audit.module_state import OptimiserTwin, moved, tensors_of, used
from harness.audit.training_step import ROUNDING, STEP_MARGIN, differences, every_fault, summed_gradients, without_hooks
from harness.core.settings import TrainingSettings
from harness.evaluation.evaluation import has_estimates
from harness.pipeline.pipeline import Pipeline
from harness.training.training import TrainingBatches
from harness.training.updates import Updates
from layers import InvertibleLinear

SECONDS = 60.0  # limit of the steps of the layers, after the first
FEW_OF_FLOW = 16  # events at a time of the reference of the flow
LEAST, MOST = 1e-5, 1e-3  # allowed relative error of results: MARGIN * condition * eps, within these bounds
MARGIN = 3.0
NEARBY = 1.0001  # factor that moves events a little, far beyond the rounding of float32


@torch.enable_grad()
def audit_training(
    result: Audit, flow: Flow, reference: Flow, pipeline: Pipeline, settings: TrainingSettings, seed: int
) -> None:
    """Compare a training step at the kept weights with float64, layer by layer and as a whole.

    The condition number in `result` bounds the allowed errors. `reference` is the flow in float64, built anew if
    possible; it is changed.
    """
    kept = deepcopy(flow.state_dict())
    with torch.random.fork_rng([pipeline.device] if pipeline.device.type == "cuda" else []):
        x, log_det = next(TrainingBatches(pipeline, settings.batch_size, seed))
        tolerance = min(max(LEAST, MARGIN * result.condition * torch.finfo(x.dtype).eps), MOST)
        faults = list(_layer_faults(result, flow, reference, x, tolerance))
        flow.load_state_dict(kept)
        if not faults and not has_estimates(flow):  # estimates differ from pass to pass
            faults = [f"flow: {fault}" for fault in _flow_faults(flow, reference, pipeline, settings, x, log_det)]
    result.reasons += faults
    flow.load_state_dict(kept)
    flow.zero_grad()
    flow.eval()


def _layer_faults(result: Audit, flow: Flow, reference: Flow, x: Tensor, tolerance: float) -> Iterator[str]:
    """Yield the first fault of each linear layer's step, as far as `SECONDS` allow."""
    with torch.no_grad():
        parts = list(flow.eval().trace(x))
    layers = [(path, layer, value) for path, layer, value in parts if isinstance(layer, InvertibleLinear)]
    exact = {path: cast("nn.Module", module) for level in reference.parts() for path, module in level}
    flow.train()
    reference.train()
    begin = time.monotonic()
    for path, layer, value in layers:
        if result.stepped_layers and time.monotonic() - begin > SECONDS:
            break
        result.stepped_layers += 1
        fault = next(every_fault(layer, exact[path], value, tolerance), None)
        if fault is not None:
            yield f"{path}: {fault}"


def _flow_faults(
    flow: Flow, reference: Flow, pipeline: Pipeline, settings: TrainingSettings, x: Tensor, log_det: Tensor
) -> Iterator[str]:
    """Yield the faults of a step of the whole flow, up to the first wrong gradient."""
    kept = deepcopy(flow.state_dict())
    n = f"in a training step of {len(x)} events"
    plain = settings.model_copy(update={"ema": "none", "clip_norm": None})
    flow.train()
    updates = Updates(flow, plain, len(pipeline.raw("train")))
    before = tensors_of(flow)
    twins = list(map(OptimiserTwin, updates.optimisers))

    def step(events: Tensor) -> None:
        updates.step(lambda model: pipeline.measures(model.log_prob(events), log_det), max(1, settings.warmup))

    step(x)
    trained = {name for name, weight in flow.named_parameters() if weight.requires_grad}
    others = {name: value for name, value in before.items() if name not in trained}
    for name in used(flow, moved(others, tensors_of(flow)), x[:FEW_OF_FLOW]):
        yield f"{name!r} moves {n} without the optimiser"
    if not all(twin.agrees() for twin in twins):
        yield f"the weights {n} are not what Adam computes from their gradients: they move alone"
    fault = next(_gradient_faults(flow, reference, pipeline, x, log_det), None)
    if fault is not None:
        flow.load_state_dict(kept)
        step(NEARBY * x)
        if any(_gradient_faults(flow, reference, pipeline, NEARBY * x, log_det)):
            yield fault


def _gradient_faults(flow: Flow, reference: Flow, pipeline: Pipeline, x: Tensor, log_det: Tensor) -> Iterator[str]:
    """Yield each gradient in the flow after a step that is not that of the reference.

    It may have the rounding of the largest sum, over the batches of the reference, of the absolute values of an entry
    of any gradient: where a coupling is saturated, gradients are far smaller, but the slope 1 - tanh(s)^2 has the
    rounding of 1.
    """
    trained = {name: weight for name, weight in reference.named_parameters() if weight.requires_grad}
    without_hooks(reference)

    def losses() -> Iterator[Tensor]:
        for events, preprocessing in zip(x.double().split(FEW_OF_FLOW), log_det.split(FEW_OF_FLOW), strict=True):
            z, flow_log_det = reference.train()(events)
            log_prob = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(1) + flow_log_det
            yield pipeline.measures(log_prob, preprocessing)["nats_per_dim"].sum() / len(x)

    totals, sizes = summed_gradients(losses(), trained)
    filled = [name for name, total in totals.items() if total.numel()]
    size = max((float(sizes[name].max()) for name in filled), default=0.0)
    rounding = ROUNDING * torch.finfo(x.dtype).eps * size
    found = {name: weight.grad for name, weight in flow.named_parameters() if weight.requires_grad}
    for name in filled:
        what = f"the gradient by {name!r} in a training step of {len(x)} events"
        yield from differences(what, found.get(name), totals[name], STEP_MARGIN * MOST, rounding)
