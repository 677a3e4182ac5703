"""The audit of a trained flow: is its likelihood a density, and its inverse an inverse?

The audit uses the evaluated weights and held-out samples. It compares every claimed log-determinant, in float64, with
derivatives that do not use it:

- linear layers, mixers included: `slogdet` of the matrix obtained by pushing the identity through; above D = 4096,
  see `harness.audit.linear`;
- couplings, split priors and ActNorm: vector-Jacobian products (see harness.audit.jacobians); squeezes and
  permutations: a check that they are permutations of the entries;
- maps without such a structure (autoregressive ones): their whole Jacobian;
- maps with an estimated log-det: see harness.audit.jacobians;
- the flow: the sum of its parts, the standard normal prior, and where D <= 256 its whole autograd Jacobian;
- preprocessing: the derivative of its closed form, entry by entry, and the log-det that the pipeline returns.

It also checks every test event as it was evaluated, as a whole (harness.audit.events) and at each linear layer
(harness.audit.applied), the flow rebuilt from its saved weights, the reported validation value, the state of every
module before and after the evaluation, the condition numbers of the linear layers, and the log-likelihood in the flow's
precision against float64; and a training step at the kept weights (harness.audit.training). Of a density that is no
flow, which has no map, all but maps, inverses and training steps is checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from flows import Contraction, Dense, Density, Flow, Permutation
from harness.audit.applied import audit_applied
from harness.audit.events import (
    Events,
    audit_batches,
    audit_inverse,
    audit_reload,
    audit_round_trips,
    audit_state,
    audit_validation,
)
from harness.audit.findings import PRECISION_LIMIT, Audit, dtype_name, largest
from harness.audit.jacobians import NotTriangular, autograd_log_det, compare_estimates, coupled_log_det, norm_bound
from harness.audit.linear import DENSE_LIMIT, SAMPLES, LayerMaker, audit_linear_layers, audit_scales
from harness.audit.training import audit_training
from harness.core.settings import TrainingSettings
from harness.evaluation.evaluation import Evaluation, generator, has_estimates
from harness.pipeline.pipeline import Pipeline
from layers import InvertibleLinear

WHOLE_LIMIT = 256  # D up to which the flow's whole Jacobian is formed
WHOLE_SAMPLES = 2


@torch.no_grad()
def audit(
    flow: Flow,
    pipeline: Pipeline,
    evaluation: Evaluation,
    make_layer: LayerMaker | None = None,
    reload: Callable[[], Flow] | None = None,
    validation: float | None = None,
    training: TrainingSettings | None = None,
) -> Audit:
    """Audit a flow on the split that it was evaluated on, without changing the flow.

    Args:
        flow, pipeline: those of the evaluation.
        evaluation: its seed also draws the noise, probes and choice of layers.
        make_layer: (layer, shape) -> a new layer of the same kind and options on another shape, used to audit layers
            too large for a dense matrix on a smaller event; without it they are not audited.
        reload: function that rebuilds the flow and loads the saved weights; None: skip that check.
        validation: reported validation value, in the data's unit; None: skip that check.
        training: settings of the training; None: skip the audit of a training step.
    """
    result = Audit()
    seed = evaluation.seed
    raw = pipeline.raw(evaluation.split)[:SAMPLES]
    x, log_det = pipeline.prepare(raw, generator(pipeline.device, seed, "audit noise"))
    probes = generator(torch.device("cpu"), seed, "audit probes")
    flow.eval()
    exact = deepcopy(flow).double()
    wide = x.double()
    audit_state(result, flow, evaluation, x)
    events = Events(pipeline, evaluation)
    audit_batches(result, flow, events)
    fresh = flow
    if reload is not None:
        fresh = reload().eval()
        audit_reload(result, fresh, events)
    if validation is not None:
        audit_validation(result, fresh, pipeline, evaluation, validation)
    _audit_preprocessing(result, pipeline, wide, log_det, probes)
    if not isinstance(flow, Density):
        parts = list(exact.trace(wide))
        maps = audit_linear_layers(result, parts, probes, make_layer, seed, x.dtype)
        audit_applied(result, flow, maps, events)
        _audit_modules(result, exact, parts, probes, seed)
        _audit_whole(result, exact, wide, seed)
        audit_inverse(result, flow, exact, events)
    else:
        result.inverse_error = result.inverse_error_float64 = result.sample_error = result.condition = math.nan
    used, better = flow.log_prob(x, *_generators(flow, seed)).double(), exact.log_prob(wide, *_generators(flow, seed))
    result.precision_error = largest(used - better) / pipeline.dim
    if result.precision_error > PRECISION_LIMIT:
        result.reasons.append(
            f"log-likelihood in {dtype_name(x.dtype)} is off by {result.precision_error:.1e} nats/dim against float64"
        )
    if training is not None and not isinstance(flow, Density):
        audit_training(result, flow, exact if reload is None else fresh.double(), pipeline, training, seed)
    return result


@torch.no_grad()
def audit_candidate(
    flow: Flow, pipeline: Pipeline, evaluation: Evaluation, make_layer: LayerMaker, validation: float
) -> Audit:
    """Audit what depends on the settings of a candidate of a tuning: its linear layers, round trips and validation.

    The rest of `audit` examines code that all candidates share, in the final trials. The arguments are those of
    `audit`, with an evaluation of the validation split.
    """
    result = Audit()
    events = Events(pipeline, evaluation)
    audit_state(result, flow, evaluation, events.inputs[:SAMPLES])
    audit_validation(result, flow, pipeline, evaluation, validation)
    flow.eval()
    parts = list(deepcopy(flow).double().trace(events.inputs[:SAMPLES].double()))
    probes = generator(torch.device("cpu"), evaluation.seed, "audit probes")
    maps = audit_linear_layers(result, parts, probes, make_layer, evaluation.seed, evaluation.dtype)
    audit_applied(result, flow, maps, events)
    audit_round_trips(result, flow, events)
    result.events, result.test_events = len(events.events), len(evaluation.prior)
    return result


def _audit_preprocessing(
    result: Audit, pipeline: Pipeline, x: Tensor, handed_on: Tensor, probes: torch.Generator
) -> None:
    """Check the closed form's derivative at the values that `prepare` made, and the log-det that it returned."""
    flat = x.flatten(1)
    if pipeline.permutation is not None:
        flat = flat[:, pipeline.permutation.argsort()]
    values = pipeline.preprocessing.inverse(flat.reshape(x.shape))
    claimed = pipeline.preprocessing(values)[1]
    derived = _compare_derived(result, "preprocessing", pipeline.preprocessing, values, claimed, probes)
    error = 0.0 if derived is None else largest(handed_on.double() - derived) / pipeline.dim
    if error > PRECISION_LIMIT:
        result.reasons.append(f"preprocessing: the log-det returned with the data is off by {error:.1e} nats/dim")


def _audit_modules(
    result: Audit, flow: Flow, parts: list[tuple[str, nn.Module, Tensor]], probes: torch.Generator, seed: int
) -> None:
    """Check each other elementary bijection at its input, the inverse of each, and their sum against the flow."""
    x = parts[0][2]
    total = x.new_zeros(len(x))
    drawn = _generators(flow, seed)
    for path, module, value in parts:
        y, claimed = module(value, *drawn) if isinstance(module, Contraction) else module(value)
        total = total + claimed
        if isinstance(module, Contraction):
            _audit_estimate(result, path, module, value, probes)
        elif isinstance(module, Dense) and value[0].numel() > DENSE_LIMIT:
            why = f"D = {value[0].numel()} is beyond {DENSE_LIMIT}, and its Jacobian has no simpler form"
            result.not_audited[path] = why
        elif isinstance(module, Dense):
            few = value[: WHOLE_SAMPLES if value[0].numel() <= WHOLE_LIMIT else 1]
            result.compare(path, claimed[: len(few)], autograd_log_det(partial(_output, module), few))
        elif isinstance(module, InvertibleLinear):
            audit_scales(result, path, module, value)
        elif y.shape != value.shape or isinstance(module, Permutation):
            if not _moves_entries(module, value, y):
                result.reasons.append(f"{path}: it is not a permutation of entries")
            result.compare(path, claimed, torch.zeros_like(claimed))
        else:
            _compare_derived(result, path, module, value, claimed, probes)
    result.compare("flow", flow(x, *_generators(flow, seed))[1], total)


def _generators(flow: Flow, seed: int) -> tuple[torch.Generator, ...]:
    """Return the generator for estimates, if the flow has any: equal in every pass, so that passes are comparable."""
    return (generator(torch.device("cpu"), seed, "audit estimates"),) if has_estimates(flow) else ()


def _audit_estimate(result: Audit, path: str, module: Contraction, value: Tensor, probes: torch.Generator) -> None:
    """Compare the mean of many estimates with the exact value, on a small event, and check the Lipschitz bound."""
    result.estimate(path, *compare_estimates(module, module.map, value[:WHOLE_SAMPLES], WHOLE_LIMIT, probes))
    bound, faults = norm_bound(module, value[:WHOLE_SAMPLES], probes)
    result.reasons += [f"{path}: {fault}" for fault in faults]
    result.estimate_bias = (result.estimate_bias or 0.0) + module.bias(bound)
    if result.lipschitz is None or bound > result.lipschitz:
        result.lipschitz, result.lipschitz_path = bound, path


def _moves_entries(module: Callable[[Tensor], tuple[Tensor, Tensor]], x: Tensor, y: Tensor) -> bool:
    """Return whether y is x with its entries permuted as the module permutes the numbers 0..D-1."""
    numbers = torch.arange(x[0].numel(), dtype=x.dtype, device=x.device)
    order = module(numbers.reshape(1, *x.shape[1:]))[0].flatten()
    return torch.equal(order.sort().values, numbers) and torch.equal(y.flatten(1), x.flatten(1)[:, order.long()])


def _audit_whole(result: Audit, flow: Flow, x: Tensor, seed: int) -> None:
    """Check the prior's closed form, and the whole Jacobian if it is small."""
    z, claimed = flow(x, *_generators(flow, seed))
    prior = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(1)
    result.compare("flow", flow.log_prob(x, *_generators(flow, seed)), prior + claimed, "log-likelihood")
    if flow.dim <= WHOLE_LIMIT and has_estimates(flow):
        (drawn,) = _generators(flow, seed)
        result.estimate("flow", *compare_estimates(flow, partial(_output, flow), x[:WHOLE_SAMPLES], flow.dim, drawn))
    elif flow.dim <= WHOLE_LIMIT:
        result.compare("flow", claimed[:WHOLE_SAMPLES], autograd_log_det(partial(_output, flow), x[:WHOLE_SAMPLES]))


def _compare_derived(
    result: Audit, path: str, module: Callable[..., Any], x: Tensor, claimed: Tensor, probes: torch.Generator
) -> Tensor | None:
    """Compare the log-det of a coupling, or of a map of single entries, with its derivatives; return that of these."""
    try:
        derived = coupled_log_det(partial(_output, module), x, probes)
    except NotTriangular as finding:
        result.reasons.append(f"{path}: {finding}")
        return None
    result.compare(path, claimed, derived)
    return derived


def _output(bijection: Callable[[Tensor], tuple[Tensor, Tensor]], x: Tensor) -> Tensor:
    return bijection(x)[0]
