"""A fixed permutation of all entries of an event."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Permutation(nn.Module):
    """y[i] = x[order[i]] over the flattened event; log|det| = 0, and the inverse restores the order.

    The order is a buffer: it is saved with the state, and never trained.

    Args:
        shape: event shape (C, *spatial), of D entries.
        order: 0..D-1 in any order.

    Raises:
        ValueError: `order` is not a permutation of the D entries.
    """

    order: Tensor

    def __init__(self, shape: tuple[int, ...], order: Sequence[int] | Tensor) -> None:
        super().__init__()
        self.shape = tuple(shape)
        dim = math.prod(self.shape)
        numbers = order.tolist() if isinstance(order, Tensor) else list(order)
        if sorted(numbers) != list(range(dim)):
            raise ValueError(
                f"order of {len(numbers)} numbers is not a permutation of the {dim} entries of events {self.shape}; "
                f"it must hold each of 0..{dim - 1} once"
            )
        self.register_buffer("order", torch.tensor(numbers, dtype=torch.long))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map (N, *shape) to the same shape; return y and 0 of shape ()."""
        return x.flatten(1)[:, self.order].reshape(-1, *self.shape), x.new_zeros(())

    def inverse(self, y: Tensor) -> Tensor:
        """Return x with x[order[i]] = y[i]."""
        return y.flatten(1)[:, self.order.argsort()].reshape(-1, *self.shape)
