"""Many weights as parts of one tensor, which an optimiser updates at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


def flattened(weights: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    """Make values and gradients of weights consecutive parts of one tensor for each device and dtype; return these.

    Every weight remains a parameter of its module, and its gradients are added to that of the tensor, which starts as
    zero. An optimiser of the tensors does the same arithmetic in fewer calls: for the 168 weights of a Glow on a CPU,
    Adam takes 0.6 instead of 1.8 ms (docs/performance/throughput.md).
    """
    kinds: dict[tuple[torch.device, torch.dtype], list[nn.Parameter]] = {}
    for weight in weights:
        kinds.setdefault((weight.device, weight.dtype), []).append(weight)
    return [_joined(alike) for alike in kinds.values()]


@torch.no_grad()
def _joined(weights: list[nn.Parameter]) -> nn.Parameter:
    joined = nn.Parameter(torch.cat([weight.flatten() for weight in weights]))
    joined.grad = torch.zeros_like(joined)
    sizes = [weight.numel() for weight in weights]
    for weight, value, gradient in zip(weights, joined.split(sizes), joined.grad.split(sizes), strict=True):
        weight.data = value.view(weight.shape)
        weight.grad = gradient.view(weight.shape)
    return joined
