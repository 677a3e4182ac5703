"""The likelihood of held-out data under a flow, for every example, in the units of the tables."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from flows import Flow

if TYPE_CHECKING:
    from harness.pipeline.pipeline import Pipeline, Split

ESTIMATES = 2  # per estimated log-determinant: the mean is used, the difference gives its standard error


def generator(device: torch.device, seed: int, purpose: str) -> torch.Generator:
    """Return a generator for one use of random numbers, a function of (seed, purpose) alone.

    The draws of one model then never affect other draws: trials of the same seed see the same batches and the same
    noise whatever their layer.
    """
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "big") >> 1)


@dataclass(frozen=True)
class Parts:
    """The contributions to a likelihood: three terms that sum to nats_per_dim, each a mean over examples and draws."""

    prior: float  # -log N(z; 0, I) / D
    log_det: float  # -log|det dz/dx| / D, of the flow
    preprocessing: float  # -log|det dx/dv| / D + mean_d log s_d (see `Pipeline`), so 0 under the linear scaling


@dataclass(frozen=True)
class Evaluation:
    """Both measures of one split's likelihood (see `Pipeline.measures`), and their standard errors.

    Attributes:
        bits_per_dim: mean over examples and dequantisation draws.
        nats_per_dim: likewise.
        standard_error: of the mean in the data's unit over the examples, each example's draws averaged first; equal
            examples count as one (see `standard_error`).
        draw_spread: standard deviation of that mean between draws; None for a single draw.
        values: every draw and example in the data's unit, (draws, N), float64 on the CPU.
        importance_weighted: mean over examples of -log (1/K) sum_k p(v + u_k) over an example's K draws, in the data's
            unit. Its expectation is between the mean's and the negative log-likelihood of the values themselves
            (Burda et al. 2016), and it is never above the mean of the same draws; equal for K = 1. nan for K > 1
            estimated likelihoods, whose exponentials are not unbiased.
        parts: the contributions to nats_per_dim.
        estimate_error: the standard error of the mean, in the data's unit, due to estimated log-determinants alone;
            part of `standard_error`. None if they are computed.
        split, batch, seed, dtype: as given to `evaluate`.
        prior: log N(z; 0, I) of each example in the first draw, (N,), float64 on the CPU.
        log_det: log|det dz/dx| likewise.
        changed: names of the parameters and buffers that the evaluation changed, empty for a correct flow; None if it
            did not compare them.
    """

    bits_per_dim: float
    nats_per_dim: float
    standard_error: float
    draw_spread: float | None
    values: Tensor
    importance_weighted: float
    parts: Parts
    estimate_error: float | None
    split: Split
    batch: int
    seed: int
    dtype: torch.dtype
    prior: Tensor
    log_det: Tensor
    changed: tuple[str, ...] | None

    @property
    def non_finite(self) -> int:
        """The number of values that are not finite; none is dropped, so that the means are then not finite either."""
        return int((~self.values.isfinite()).sum())

    @property
    def median(self) -> float:
        """The median over the examples, each example's draws averaged first, in the data's unit."""
        return float(np.median(self.values.mean(0).numpy()))

    @property
    def worst(self) -> float:
        """The largest value of an example, its draws averaged first, in the data's unit."""
        return float(self.values.mean(0).max())


def has_estimates(flow: Flow) -> bool:
    """Return whether the flow's likelihood is an estimate, which then needs a generator."""
    return isinstance(flow, Flow) and flow.estimated


def evaluated_inputs(
    pipeline: Pipeline, split: Split, batch: int, seed: int, dtype: torch.dtype
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the flow's input and the log-det of the preprocessing for each pass of the first draw of `evaluate`."""
    raw = pipeline.raw(split)
    noise = evaluated_noise(pipeline, split, seed)
    for start in range(0, len(raw), batch):
        x, preprocessing = pipeline.prepare(raw[start : start + batch], noise)
        yield x.to(dtype), preprocessing


def evaluated_noise(pipeline: Pipeline, split: Split, seed: int) -> torch.Generator:
    """Return the generator of the dequantisation noise of `evaluate`."""
    return generator(pipeline.device, seed, f"evaluation noise of {split}")


@torch.no_grad()
def evaluate(
    flow: Flow,
    pipeline: Pipeline,
    split: Split,
    draws: int,
    batch: int,
    seed: int,
    dtype: torch.dtype = torch.float32,
    compare: bool = True,
) -> Evaluation:
    """Evaluate the likelihood of every example of a split, the last, smaller batch included.

    Args:
        flow: in `dtype`; it is put into eval().
        pipeline, split: the data.
        draws: independent dequantisation draws per example.
        batch: examples per pass.
        seed: seed of the dequantisation noise; equal seeds give equal noise, whatever the model.
        dtype: of the flow's input.
        compare: find out whether the evaluation changes the state of the flow, which takes two copies of it.
    """
    raw = pipeline.raw(split)
    noise = evaluated_noise(pipeline, split, seed)
    estimate_draws = generator(torch.device("cpu"), seed, f"evaluation estimates of {split}")
    before = state_of(flow) if compare else None
    flow.eval()
    estimated = has_estimates(flow)
    # One tensor for all passes: small ones that outlive their pass would prevent the allocator from reusing the memory
    # that the passes free, some MB each.
    terms = torch.empty(4, draws, len(raw), dtype=torch.float64, device=pipeline.device)
    for draw in range(draws):
        for start in range(0, len(raw), batch):
            x, preprocessing = pipeline.prepare(raw[start : start + batch], noise)
            prior, log_det = flow.terms(x.to(dtype), estimate_draws) if estimated else flow.terms(x.to(dtype))
            second = flow.terms(x.to(dtype), estimate_draws)[1] if estimated else log_det
            for place, values in zip(
                terms[:, draw, start : start + batch], (prior, log_det, preprocessing, second), strict=True
            ):
                place.copy_(values)
    prior, log_det, preprocessing, second = terms.cpu()
    error = None
    if estimated:
        scale = pipeline.dim * (math.log(2) if pipeline.unit == "bits_per_dim" else 1.0)
        # Half of the difference of two estimates has the variance of their mean.
        error = float(((log_det - second) / ESTIMATES).norm() / log_det.numel() / scale)
        log_det = (log_det + second) / ESTIMATES
    measures = pipeline.measures(prior + log_det, preprocessing)
    values = measures[pipeline.unit]
    mixture = (prior + log_det + preprocessing).logsumexp(0) - math.log(draws)
    return Evaluation(
        bits_per_dim=float(measures["bits_per_dim"].mean()),
        nats_per_dim=float(measures["nats_per_dim"].mean()),
        standard_error=standard_error(values.mean(0), pipeline.raw(split).groups),
        draw_spread=float(values.mean(1).std()) if draws > 1 else None,
        values=values,
        importance_weighted=math.nan
        if estimated and draws > 1
        else float(pipeline.measures(mixture, torch.zeros_like(mixture))[pipeline.unit].mean()),
        parts=Parts(
            prior=float(-prior.mean() / pipeline.dim),
            log_det=float(-log_det.mean() / pipeline.dim),
            preprocessing=float(pipeline.log_step - preprocessing.mean() / pipeline.dim),
        ),
        estimate_error=error,
        split=split,
        batch=batch,
        seed=seed,
        dtype=dtype,
        prior=prior[0],
        log_det=log_det[0],
        changed=None if before is None else changed_state(before, state_of(flow)),
    )


def nats_per_event(pipeline: Pipeline, nats_per_dim: float) -> float | None:
    """Return -log p of vectors in the units of the source, from its nats_per_dim; None for other events.

    It is free of the training range: with the step t_d of entry d, D (nats_per_dim - log_step) + sum_d log t_d.
    """
    if pipeline.levels is not None or pipeline.shape[1:] != (1,):
        return None
    steps = [abs(lattice.step) for lattice in pipeline.splits.lattices or ()]
    return pipeline.dim * (nats_per_dim - pipeline.log_step) + sum(map(math.log, steps))


def resolution_floor(pipeline: Pipeline, split: Split = "test") -> float | None:
    """Return the resolution floor in the data's unit; None if unknown: off a lattice, nothing bounds a density.

    As E_u[-log p(v + u)] >= 0 for every density p and value v (see `Pipeline`), no likelihood of dequantised data has
    expected bits_per_dim below 0 or nats_per_dim below mean_d log s_d.

    Where each value has a width of its own, it is that of the values of a split: the entropy of its noise.
    """
    splits = pipeline.splits
    if splits.log_widths is not None:
        return pipeline.log_step + splits.log_widths[list(splits.parts()).index(split)]
    if splits.no_floor is not None or not all(splits.noisy):
        return None
    if splits.digits is not None:
        return pipeline.log_step + float(pipeline.widths(pipeline.raw(split)[:]).log().mean())
    return 0.0 if pipeline.unit == "bits_per_dim" else pipeline.log_step


def standard_error(values: Tensor, groups: Tensor) -> float:
    """Return the standard error of the mean of values (N,), of which those of a group are one independent draw.

    With G groups g it is sqrt(G / (G - 1) sum_g (sum_{n in g} (v_n - mean))^2) / N; nan for a single group.
    """
    sums = torch.zeros(int(groups.max()) + 1, dtype=values.dtype).index_add(0, groups, values - values.mean())
    count = len(sums)
    return math.sqrt(count / (count - 1)) * float(sums.norm()) / len(values) if count > 1 else math.nan


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """Return a copy of every parameter and buffer by name, including those that a state_dict omits."""
    named = [*module.named_parameters(), *module.named_buffers()]
    return {name: value.detach().clone() for name, value in named}


def changed_state(before: dict[str, Tensor], after: dict[str, Tensor]) -> tuple[str, ...]:
    """Return the names of tensors that appeared, vanished or changed in any bit."""
    names = sorted(before.keys() | after.keys())
    return tuple(
        name for name in names if name not in before or name not in after or not identical(before[name], after[name])
    )


def identical(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors have the same dtype, shape and values, NaN included."""
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    return bool(((first == second) | (first != first)).all())
