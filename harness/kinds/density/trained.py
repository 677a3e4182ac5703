"""A trained flow with its pre-processing: samples and log-densities in the units of the data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from flows import Flow
from harness.core.errors import UserError
from harness.evaluation.evaluation import evaluated_noise, generator, has_estimates
from harness.kinds.density.trial import FlowTrial
from harness.kinds.density.weights import load_trained, weights_path
from harness.pipeline.pipeline import Pipeline

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True)
class TrainedFlow:
    """The flow of a trial, with the weights that were evaluated, in eval().

    Events are arrays (N, *shape) in the data's units, those of the arrays of the data set: the levels of an image, the
    steps of a converter, or real numbers.

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

    @torch.no_grad()
    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """Draw n events, (n, *shape), of the data's type; equal seeds give equal events.

        A draw of the flow is rounded down to the lattice where the data lie on one, and limited to the values that the
        data's levels or type have.
        """
        parts = []
        drawn, batch = generator(torch.device("cpu"), seed, "samples"), self.trial.training.evaluation_batch
        for start in range(0, n, batch):
            parts.append(self.pipeline.to_data(self.flow.sample(min(batch, n - start), generator=drawn)))
        return np.concatenate(parts) if parts else self.pipeline.to_data(torch.empty(0, *self.shape))

    @torch.no_grad()
    def log_prob(self, events: ArrayLike, seed: int = 0) -> np.ndarray:
        """Return the log-density of each event in nats, (N,) in float64, with one unit of the data as unit of length.

        Values v on a lattice are dequantised, as in training: the density is that of v + u, with u uniform on [0, 1)
        for each entry, drawn with the seed. Its mean over draws is a lower bound on the log-probability of v itself
        (Theis et al. 2016); average over seeds to reduce the noise. -log_prob / (D log 2) are bits/dim. With the
        trial's seed, the values of the test split are those of the trial's evaluation (of its first draw). A flow whose
        log-determinants are estimates gives unbiased estimates, drawn with the seed as well.

        Raises:
            UserError: the events have another shape, or values that the data cannot have.
        """
        values = torch.as_tensor(self._checked(np.asarray(events)), device=self.pipeline.device)
        noise = evaluated_noise(self.pipeline, "test", seed)
        estimates = generator(torch.device("cpu"), seed, "evaluation estimates of test")
        drawn = (estimates,) if has_estimates(self.flow) else ()
        found = []
        for part in values.split(self.trial.training.evaluation_batch):
            x, log_det = self.pipeline.prepare(part, noise)
            found.append(sum(term.double() for term in self.flow.terms(x, *drawn)) + log_det)
        return torch.cat(found).cpu().numpy() if found else np.empty(0)

    def _checked(self, events: np.ndarray) -> np.ndarray:
        if events.shape[1:] != self.shape or events.ndim != len(self.shape) + 1:
            raise UserError(
                f"log_prob: an array of shape {events.shape}; expected (N, {', '.join(map(str, self.shape))})"
            )
        values = events.astype(np.float64)
        if not np.isfinite(values).all():
            raise UserError("log_prob: the array has values that are not finite")
        if self.pipeline.lattice and (values != np.floor(values)).any():
            raise UserError("log_prob: the values lie on a lattice, and the array has others; give whole numbers")
        levels = self.pipeline.levels
        if levels is not None and ((values < 0) | (values >= levels)).any():
            raise UserError(f"log_prob: values {values.min():g} to {values.max():g}; the levels are 0 to {levels - 1}")
        return values


def load(trial: FlowTrial, folder: Path, device: str) -> TrainedFlow:
    """Return the trained flow of a trial of a run; raise UserError if its weights are missing or do not fit."""
    return TrainedFlow(trial, *load_trained(trial, weights_path(trial, folder), device))
