"""One matrix applied to the channels of every position of a batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from layers.kernels import load as kernels

LEAST_CHANNELS = 16  # per position, for products with rows; 12: forward took 12 % longer; 48: half the time
MOST_CHANNELS = 12  # of the compiled product; with 16, forward and backward took as long as a matrix library's
LEAST_POSITIONS = 16  # of the same: a vector


def mix_channels(weight: Tensor, x: Tensor) -> Tensor:
    """Apply one (C', C) matrix to every position of a batch (N, C, *spatial).

    Few channels are a matter of memory rather than of arithmetic, and matrix libraries, which take them event by event,
    need about twice as long as a copy: for these, `invertbench::mix_channels` takes one pass in either direction.
    """
    if has_few_positions(x):
        return as_events(F.linear(as_rows(x), weight), x)
    if _kernel_serves(weight, x):
        return torch.ops.invertbench.mix_channels(x, weight)
    # A batched product with a broadcast weight: `weight @ x` would first transpose and copy the batch.
    return torch.bmm(weight.expand(x.shape[0], -1, -1), x.flatten(2)).unflatten(2, x.shape[2:])


def _kernel_serves(weight: Tensor, x: Tensor) -> bool:
    """Return whether the compiled operator supports these and is faster: on a CPU, in full precision."""
    few = max(weight.shape) <= MOST_CHANNELS and x.shape[2:].numel() >= LEAST_POSITIONS
    return few and kernels.serve_on_processor(weight, x)


def has_few_positions(x: Tensor) -> bool:
    """Return whether a matrix is multiplied faster with the rows of a batch (N, C, *spatial) than event by event.

    For a vector nothing is copied; with more positions, the two transpositions pay if the products are larger.
    """
    positions = x.shape[2:].numel()
    return positions == 1 or LEAST_CHANNELS * positions <= x.shape[1]


def as_rows(x: Tensor) -> Tensor:
    """Return the channels of every position of a batch (N, C, *spatial) as a row, (N * n, C)."""
    return x.flatten(2).transpose(1, 2).flatten(0, 1)


def as_events(rows: Tensor, x: Tensor) -> Tensor:
    """Return rows (N * n, C') as a batch (N, C', *spatial) with the events and positions of x."""
    y = rows.unflatten(0, (x.shape[0], x.shape[2:].numel())).transpose(1, 2).contiguous()
    return y.unflatten(2, x.shape[2:])
