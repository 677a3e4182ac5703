"""Trade space for channels."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from flows.shapes import UnsupportedEvent, level_shapes


class Squeeze(nn.Module):
    """Move blocks of 2 neighbours per spatial axis into the channels; a permutation, so log|det| = 0.

    Images (C, H, W) -> (4C, H/2, W/2), output channel 4c + 2i + j from row i and column j of the block.
    Sequences (C, L) -> (2C, L/2), output channel C i + c from place i of the block, so that the first half of
    the channels is the first of each two moments, and (time, channel) order is kept.

    Raises:
        UnsupportedEvent: a spatial axis is odd, or the event has one position.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = tuple(shape)
        (self.squeezed_shape,) = level_shapes(self.shape, 1)
        if self.squeezed_shape == self.shape:
            raise UnsupportedEvent(f"event shape {self.shape}: one position cannot be squeezed; use fewer levels")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map (N, *shape) to (N, *squeezed_shape); return y and 0 of shape ()."""
        zero = x.new_zeros(())
        if len(self.shape) == 3:
            return F.pixel_unshuffle(x, 2), zero
        channels, length = self.shape
        pairs = x.reshape(-1, channels, length // 2, 2)
        return pairs.permute(0, 3, 1, 2).reshape(-1, *self.squeezed_shape), zero

    def inverse(self, y: Tensor) -> Tensor:
        """Map (N, *squeezed_shape) to (N, *shape)."""
        if len(self.shape) == 3:
            return F.pixel_shuffle(y, 2)
        channels, length = self.shape
        pairs = y.reshape(-1, 2, channels, length // 2)
        return pairs.permute(0, 2, 3, 1).reshape(-1, *self.shape)

    def extra_repr(self) -> str:
        """Return the event shapes, for repr()."""
        return f"{self.shape} -> {self.squeezed_shape}"
