"""Circular padding, forward and backward.

Autograd would hand the gradient back through every border that torch's circular padding copies in place, each time with
a copy of the whole; here it is one addition for each border.
"""

from __future__ import annotations

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
