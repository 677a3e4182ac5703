"""A trained flow with its pre-processing: samples and log-densities in the units of the data."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from pydantic import Field

from flows import Flow
from harness.core.arguments import check, rule
from harness.core.errors import UserError
from harness.core.global_settings import default_device_cpu
from harness.core.layer_classes import kept_default_dtype
from harness.core.records import Record
from harness.core.settings import Settings
from harness.datasets._values.lattice import STATED_ERROR, Lattice
from harness.evaluation.evaluation import evaluated_noise, generator, has_estimates
from harness.kinds.density.trial import DensityTrial, FlowTrial
from harness.kinds.density.weights import load_flow, load_trained, weights_path
from harness.pipeline.pipeline import Pipeline

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


SAME = 1e-3  # nats/dim: of equal weights on other machines
MOST_VALUES = 2**31
"""Entries of the events that one call draws: 16 GB as float64."""


Whole = Annotated[int, rule(lambda value: int(value) if isinstance(value, np.integer) else value, int)]


class _Draw(Settings):
    n: Whole = Field(default=0, ge=0, lt=2**63, strict=True)
    seed: Whole = Field(default=0, ge=-(2**63), lt=2**63, strict=True)


@dataclass(frozen=True)
class TrainedFlow:
    """The flow of a trial, with the weights that were evaluated, in eval().

    Events are arrays (N, *shape) in the units of the data's source: an image file's levels, a recording's physical
    units, the numbers of an .npz or .csv file. The values of a third-party data set are the entries of its arrays,
    unless it states `Splits.lattices`.

    Attributes:
        trial: the settings of the trial.
        flow: x -> z on pre-processed events x; `flow.log_prob(x)` is a density of x, not of the data.
        pipeline: the pre-processing.
    """

    trial: FlowTrial
    flow: Flow
    pipeline: Pipeline

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an event, (C, L) or (C, H, W)."""
        return self.pipeline.shape

    @default_device_cpu()
    @kept_default_dtype(torch.float32)
    @torch.no_grad()
    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """Draw n events, (n, *shape); equal seeds give equal events.

        A draw of the flow is rounded down to the lattice where the data lie on one, and limited to the values that the
        data's levels or type have. Values on a lattice other than the whole numbers are float64, others have the type
        of the data set's arrays.
        """
        check(_Draw, {"n": n, "seed": seed})
        if n * math.prod(self.shape) > MOST_VALUES:
            most = MOST_VALUES // math.prod(self.shape)
            raise UserError(f"n: {n} events of shape {self.shape} are too many for one call; draw at most {most:,}")
        parts = []
        drawn, batch = generator(torch.device("cpu"), seed, "samples"), self.trial.training.evaluation_batch
        for start in range(0, n, batch):
            parts.append(self.pipeline.to_data(self.flow.sample(min(batch, n - start), generator=drawn)))
        entries = np.concatenate(parts) if parts else self.pipeline.to_data(torch.empty(0, *self.shape))
        offset, step, _ = self._lattices()
        return entries if (offset == 0).all() and (step == 1).all() else offset + entries * step

    @default_device_cpu()
    @kept_default_dtype(torch.float32)
    @torch.no_grad()
    def log_prob(self, events: ArrayLike, seed: int = 0) -> np.ndarray:
        """Return the log-density of each event in nats, (N,) in float64, per unit of the data in each dimension.

        Values v on a lattice of step s are dequantised, as in training: the density is that of v + s u, with u uniform
        on [0, 1) for each entry, drawn with the seed. With log|s| of each of the D entries added, its mean over draws
        is a lower bound on the log-probability of v itself (Theis et al. 2016), and the negative of that sum over
        D log 2 is bits/dim; average over seeds to reduce the noise. With the trial's seed, the values of the test split
        are those of the trial's evaluation (of its first draw). A flow whose log-determinants are estimates gives
        unbiased estimates, drawn with the seed as well.

        Raises:
            UserError: the events have another shape, or values that the data cannot have.
        """
        check(_Draw, {"seed": seed})
        values = torch.as_tensor(self._entries(np.asarray(events)), device=self.pipeline.device)
        noise = evaluated_noise(self.pipeline, "test", seed)
        estimates = generator(torch.device("cpu"), seed, "evaluation estimates of test")
        drawn = (estimates,) if has_estimates(self.flow) else ()
        log_probs = []
        for part in values.split(self.trial.training.evaluation_batch):
            x, log_det = self.pipeline.prepare(part, noise)
            log_probs.append(sum(term.double() for term in self.flow.terms(x, *drawn)) + log_det)
        per_unit = math.prod(self.shape[1:]) * np.log(np.abs(self._lattices()[1])).sum()
        return torch.cat(log_probs).cpu().numpy() - per_unit if log_probs else np.empty(0)

    def _lattices(self) -> np.ndarray:
        """Return offset, step and tolerance, (3, C, 1, ...), of the lattices whose k-th value an entry k stands for."""
        lattices = self.pipeline.values.lattices or [Lattice(0.0, 1.0)] * self.shape[0]
        return np.transpose([astuple(lattice) for lattice in lattices]).reshape(3, -1, *[1] * (len(self.shape) - 1))

    def _entries(self, events: np.ndarray) -> np.ndarray:
        if events.shape[1:] != self.shape or events.ndim != len(self.shape) + 1:
            raise UserError(
                f"log_prob: an array of shape {events.shape}; expected (N, {', '.join(map(str, self.shape))})"
            )
        values = events.astype(np.float64)
        if not np.isfinite(values).all():
            raise UserError("log_prob: the array has values that are not finite")
        offset, step, tolerance = self._lattices()
        entries = (values - offset) / step
        if not self.pipeline.lattice:
            return entries
        entries = np.rint(entries)
        # Whole numbers are exact. Elsewhere at least the tolerance of a stated lattice: the array may have been
        # computed, or be in another precision.
        whole = (offset == np.rint(offset)) & (step == np.rint(step))
        allowed = np.where(whole, tolerance, np.maximum(tolerance, STATED_ERROR * np.abs(step)))
        off = np.abs(values - (offset + entries * step)) > allowed
        if off.any():
            event, channel, *_ = np.argwhere(off)[0]
            raise UserError(
                f"log_prob: event {event}, channel {channel}: {values[off][0]:.9g} is not a multiple of the step "
                f"{step[channel].item():g} from {offset[channel].item():g}; give values that the data can have"
            )
        levels = self.pipeline.levels
        if levels is not None and ((entries < 0) | (entries >= levels)).any():
            raise UserError(
                f"log_prob: values {values.min():g} to {values.max():g}; the {levels} levels are {offset.min():g} to "
                f"{(offset + (levels - 1) * step).max():g}"
            )
        return entries


def load(trial: FlowTrial, folder: Path, device: str) -> TrainedFlow:
    """Return the trained flow of a trial of a run; raise UserError if its weights are missing or do not fit."""
    return TrainedFlow(trial, *load_trained(trial, weights_path(trial, folder), device))


def contradictions(trial: DensityTrial, record: Record, folder: Path, root: Path | None) -> str | None:
    """Return what a new evaluation and audit of kept weights contradict in the record; None without weights."""
    from harness.kinds.density.run import evaluated

    path = weights_path(trial, folder)
    if not path.is_file():
        return None
    test, findings = evaluated(trial, load_flow(trial, path), root)
    stated = record.rows[0]["nats_per_dim"]
    faults = list(findings.reasons)
    if not abs(test.nats_per_dim - stated) <= SAME:
        faults.append(f"{test.nats_per_dim:.6g} nats/dim, recorded {stated:.6g}")
    return "; ".join(faults)
