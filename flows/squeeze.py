"""Trade space for channels."""

from __future__ import annotations

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
        # Not by F.pixel_unshuffle, which leaves an empty batch in its shape; and this takes less time.
        blocks = x.reshape(-1, self.shape[0], *(part for size in self.shape[1:] for part in (size // 2, 2)))
        order = (0, 1, 3, 5, 2, 4) if len(self.shape) == 3 else (0, 3, 1, 2)
        return blocks.permute(order).reshape(-1, *self.squeezed_shape), x.new_zeros(())

    def inverse(self, y: Tensor) -> Tensor:
        """Map (N, *squeezed_shape) to (N, *shape)."""
        channels, *halves = self.shape[0], *self.squeezed_shape[1:]
        if len(self.shape) == 3:
            blocks = y.reshape(-1, channels, 2, 2, *halves).permute(0, 1, 4, 2, 5, 3)
        else:
            blocks = y.reshape(-1, 2, channels, *halves).permute(0, 2, 3, 1)
        return blocks.reshape(-1, *self.shape)
