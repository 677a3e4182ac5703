"""The log-determinant of a 1x1 convolution as released sequence code computes it: once, not once per position.

Over n positions y_t = W x_t has log|det| = n log|det W|. ButterflyFlow's released code for MIMIC-III (Meng et al., ICML
2022) returns log|det W|. Its log p(x) is then

    log p(x) - sum over the 1x1 convolutions of (1 - 1/n) n log|det W|,

which is not a log-density: shrinking W raises it without bound. Training on it shows how the published values arise. A
suite must request it by `accounting: once_per_sequence`, and only one of kind claims may contain such a suite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from layers import LAYERS

if TYPE_CHECKING:
    from flows import Flow


def uncounted(flow: Flow) -> Tensor:
    """Return the part of log|det dz/dx| that the released code omits, shape (), in nats per event; differentiable."""
    left_out = next(flow.parameters()).new_zeros(())
    for _, module in flow.linear_layers():
        if isinstance(module, LAYERS["conv1x1"]):
            positions = module.dim // module.shape[0]
            _, log_det = module(left_out.new_zeros(1, *module.shape))
            left_out = left_out + log_det * (positions - 1) / positions
    return left_out
