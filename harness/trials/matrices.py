"""A layer as a matrix, from what it does to the basis vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from layers import InvertibleLinear

CHUNK = 512  # basis vectors at once


@torch.no_grad()
def matrix_of(layer: InvertibleLinear) -> Tensor:
    """W of y = W x (+ b), (D, D), in the layer's own precision."""
    weight = next(layer.parameters())
    zero = layer(torch.zeros(1, *layer.shape, dtype=weight.dtype, device=weight.device))[0].flatten()
    columns = []
    for basis in torch.eye(layer.dim, dtype=weight.dtype, device=weight.device).split(CHUNK):
        columns.append(layer(basis.reshape(-1, *layer.shape))[0].flatten(1) - zero)
    return torch.cat(columns).T
