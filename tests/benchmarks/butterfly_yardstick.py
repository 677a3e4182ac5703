"""The butterfly level by level in eager PyTorch, with which kernels are compared.

Per level, x is viewed as (N, B, 1, 2, h) and the weights are (B, 2 out, 2 in, h): y = (W[None] * x).sum(3), and the
log-det is the sum of log|ad - bc|. The inverse inverts every 2x2 matrix in closed form.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def level_weights(weight: Tensor, dim: int, levels: int) -> list[Tensor]:
    """Return the weight (2, 2, P) of levels 1, 2, ... on D entries as (B, 2 out, 2 in, h) for each level."""
    pieces = weight.detach().reshape(2, 2, levels, dim // 2).unbind(2)
    return [
        piece.reshape(2, 2, 2**i, dim >> (i + 1)).permute(2, 0, 1, 3).contiguous().requires_grad_()
        for i, piece in enumerate(pieces)
    ]


def forward(x: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Apply every level, in order: (N, *shape) -> (N, *shape), ()."""
    y, log_det = x, x.new_zeros(())
    for weight in weights:
        blocks, _, _, half = weight.shape
        y = (weight[None] * y.reshape(len(x), blocks, 1, 2, half)).sum(3)
        (a, b), (c, d) = weight.permute(1, 2, 0, 3)
        log_det = log_det + (a * d - b * c).abs().log().sum()
    return y.reshape(x.shape), log_det


def inverse(y: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Undo every level, the last one first."""
    x = y
    for weight in reversed(weights):
        blocks, _, _, half = weight.shape
        (a, b), (c, d) = weight.permute(1, 2, 0, 3)
        adjugate = torch.stack((torch.stack((d, -b), 1), torch.stack((-c, a), 1)), 1)
        x = ((adjugate / (a * d - b * c)[:, None, None])[None] * x.reshape(len(y), blocks, 1, 2, half)).sum(3)
    return x.reshape(y.shape)
