"""Convolutions of events: circular padding, and the matrix of a zero-padded convolution from its definition.

Autograd would hand the gradient of torch's circular padding back through every border that it copies in place, each
time with a copy of the whole; here it is one addition for each border.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

LEAST_ENTRIES = 2**15  # of a batch whose gradient is worth the call of a Function, some 0.1 ms


def wrapped(x: Tensor, before: int, after: int) -> Tensor:
    """Return a batch (N, C, *spatial) with this many entries of its other end added to both ends of each axis."""
    recorded = torch.is_grad_enabled() and x.requires_grad and x.numel() >= LEAST_ENTRIES
    if not recorded or torch.compiler.is_compiling():  # which traces no Function with a `jvp`
        return F.pad(x, [before, after] * (x.ndim - 2), mode="circular")
    result: Tensor = _Wrapped.apply(x, before, after)
    return result


class _Wrapped(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, before: int, after: int) -> Tensor:
        return F.pad(x, [before, after] * (x.ndim - 2), mode="circular")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, int], output: Any) -> None:
        """Keep the widths of the borders."""
        _, ctx.before, ctx.after = inputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        before, after = ctx.before, ctx.after
        for axis in range(2, gradient.ndim):
            size = gradient.shape[axis] - before - after
            inner = gradient.narrow(axis, before, size).clone(memory_format=torch.contiguous_format)
            inner.narrow(axis, size - before, before).add_(gradient.narrow(axis, 0, before))
            inner.narrow(axis, 0, after).add_(gradient.narrow(axis, before + size, after))
            gradient = inner
        return gradient, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return wrapped(tangent, ctx.before, ctx.after)


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
