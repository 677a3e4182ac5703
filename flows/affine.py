"""The affine maps of a flow's step: of every channel (ActNorm), and of a coupling's moved channels.

They only move numbers, so passes over memory are their cost. On a CPU, if the compiled operators can be loaded
(`layers.kernels.load`), `invertbench::actnorm` and `invertbench::affine_coupling` take one pass in either direction.
Otherwise PyTorch computes them.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from flows.second_derivatives import differentiable_gradients
from layers.kernels import load as kernels


def affine_channels(x: Tensor, shift: Tensor, log_scale: Tensor) -> Tensor:
    """Return (x + shift) * exp(log_scale), x (N, C, *spatial), with a shift and a scale for each channel, (C,)."""
    if not _kernel_serves(x, shift, log_scale):
        return _plain_channels(x, shift, log_scale)
    return cast(Tensor, _Channels.apply(x, shift, log_scale))


def affine_coupling(kept: Tensor, moved: Tensor, log_scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Return kept and moved * exp(log_scale) + shift, joined along the channels, and the sums of log_scale.

    Args:
        kept: (N, kept, *spatial).
        moved, log_scale, shift: (N, moved, *spatial).

    Returns:
        (N, kept + moved, *spatial), and (N,).
    """
    if not _kernel_serves(kept, moved, log_scale, shift):
        return _plain_coupling(kept, moved, log_scale, shift)
    return cast("tuple[Tensor, Tensor]", _Coupling.apply(kept, moved, log_scale, shift))


class _Channels(torch.autograd.Function):
    """`invertbench::actnorm` with its gradient; second derivatives are plain PyTorch's."""

    @staticmethod
    def forward(ctx: Any, *operands: Tensor) -> Tensor:
        ctx.save_for_backward(*operands)
        y: Tensor = torch.ops.invertbench.actnorm(*operands)
        return y

    @staticmethod
    def backward(ctx: Any, of_y: Tensor) -> tuple[Tensor | None, ...]:
        operands = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return tuple(torch.ops.invertbench.actnorm_backward(of_y, *operands))
        return differentiable_gradients(_plain_channels, operands, ctx.needs_input_grad, of_y)


class _Coupling(torch.autograd.Function):
    """`invertbench::affine_coupling` with its gradient; second derivatives are plain PyTorch's."""

    @staticmethod
    def forward(ctx: Any, *operands: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(*operands)
        y, log_det = torch.ops.invertbench.affine_coupling(*operands)
        return y, log_det

    @staticmethod
    def backward(ctx: Any, of_y: Tensor, of_log_det: Tensor) -> tuple[Tensor | None, ...]:
        kept, moved, log_scale, shift = ctx.saved_tensors
        if not torch.is_grad_enabled():
            of_x, of_log_scale = torch.ops.invertbench.affine_coupling_backward(of_y, of_log_det, moved, log_scale)
            sizes = [kept.shape[1], moved.shape[1]]
            return *of_x.split(sizes, dim=1), of_log_scale, of_y.split(sizes, dim=1)[1]
        operands = kept, moved, log_scale, shift
        return differentiable_gradients(_plain_coupling, operands, ctx.needs_input_grad, (of_y, of_log_det))


def _kernel_serves(*tensors: Tensor) -> bool:
    """Return whether the compiled operators support these: on a CPU, and in full precision."""
    return tensors[0].is_cpu and not torch.is_autocast_enabled("cpu") and kernels.serve(*tensors)


def _plain_channels(x: Tensor, shift: Tensor, log_scale: Tensor) -> Tensor:
    shift, log_scale = (vector.view(-1, *[1] * (x.ndim - 2)) for vector in (shift, log_scale))
    return (x + shift) * log_scale.exp()


def _plain_coupling(kept: Tensor, moved: Tensor, log_scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    return torch.cat([kept, moved * log_scale.exp() + shift], dim=1), log_scale.flatten(1).sum(1)
