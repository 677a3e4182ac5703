"""The matrix of a zero-padded convolution, entry by entry from the definition: for `dense` and its tests."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def convolution_matrix(taps: Tensor, sizes: Sequence[int], centre: Sequence[int]) -> Tensor:
    """Return the matrix whose entry (o, p), (i, q) is taps[o, i, q - p + centre], and 0 outside the kernel.

    Args:
        taps: (c, c, k) or (c, c, k, k).
        sizes: of the spatial axes, with n positions in all.
        centre: index of the tap that weighs the pixel itself, on each axis.

    Returns:
        (c n, c n).
    """
    kernel, axes = taps.shape[-1], len(sizes)
    grid = torch.cartesian_prod(*(torch.arange(size) for size in sizes)).reshape(-1, axes)
    tap = (grid - grid[:, None] + torch.tensor(centre)).to(taps.device)  # (output position, input position, axis)
    inside = ((tap >= 0) & (tap < kernel)).all(-1)
    strides = kernel ** torch.arange(axes, device=taps.device).flip(0)
    entries = taps.flatten(2)[..., (tap.clamp(0, kernel - 1) * strides).sum(-1)] * inside
    return entries.transpose(1, 2).reshape(len(taps) * len(grid), -1)
