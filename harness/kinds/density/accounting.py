"""The log-determinant of a 1x1 convolution as released sequence code computes it: once, not once per position.

Over n positions y_t = W x_t has log|det| = n log|det W|. ButterflyFlow's released code for MIMIC-III (Meng et al., ICML
2022) returns log|det W|. Its log p(x) is then

    log p(x) - sum over the 1x1 convolutions of (1 - 1/n) n log|det W|,

which is not a log-density: shrinking W raises it without bound. Training on it shows how the published values arise. A
suite must request it by `accounting: once_per_sequence`, and only one of kind claims may contain such a suite.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.core.records import finite
from harness.training.training import Callback, Curves
from layers import LAYERS

if TYPE_CHECKING:
    from flows import Flow
    from harness.pipeline.pipeline import Pipeline


def uncounted(flow: Flow) -> Tensor:
    """Return the part of log|det dz/dx| that the released code omits, shape (), in nats per event; differentiable."""
    left_out = next(flow.parameters()).new_zeros(())
    for _, module in flow.linear_layers():
        if isinstance(module, LAYERS["conv1x1"]):
            positions = module.dim // module.shape[0]
            _, log_det = module(left_out.new_zeros(1, *module.shape))
            left_out = left_out + log_det * (positions - 1) / positions
    return left_out


@torch.no_grad()
def claimed_shift(flow: Flow, pipeline: Pipeline) -> float:
    """Return the amount that the released accounting adds to a value in the data's unit."""
    nats = float(uncounted(flow)) / pipeline.dim
    return nats / math.log(2) if pipeline.unit == "bits_per_dim" else nats


class ReleasedAccounting(Callback):
    """Train and select by the released value; the curve "true_validation" has the likelihood of the same weights."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def objective(self, flow: Flow, log_prob: Tensor) -> Tensor:
        """Return log p(x) without the part of the log-determinants that is not counted."""
        return log_prob - uncounted(flow)

    def on_validation(self, flow: Flow, value: float, curves: Curves) -> float:
        """Return the claimed value."""
        curves.setdefault("true_validation", []).append(finite(value))
        return value + claimed_shift(flow, self._pipeline)
