"""The affine maps of a flow's step: of every channel (ActNorm), and of a coupling's moved channels.

Passes over memory are most of their cost. On large batches on a CPU, if the compiled operators can be loaded
(`layers.kernels.load`), `invertbench::actnorm` and `invertbench::affine_coupling` take one pass in either direction.
Otherwise PyTorch computes them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from layers.kernels import load as kernels

LEAST_ENTRIES = 2**16  # of a batch; of smaller ones the call takes longest


def affine_channels(x: Tensor, shift: Tensor, log_scale: Tensor) -> Tensor:
    """Return (x + shift) * exp(log_scale), x (N, C, *spatial), with a shift and a scale for each channel, (C,)."""
    if not _kernel_serves(x, shift, log_scale):
        return _plain_channels(x, shift, log_scale)
    y: Tensor = torch.ops.invertbench.actnorm(x, shift, log_scale)
    return y


def affine_coupling(kept: Tensor, moved: Tensor, log_scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Return kept and moved * exp(log_scale) + shift, joined along the channels, and the sums of log_scale.

    Args:
        kept: (N, kept, *spatial).
        moved, log_scale, shift: (N, moved, *spatial).

    Returns:
        (N, kept + moved, *spatial), and (N,).
    """
    if not _kernel_serves(moved, kept, log_scale, shift):
        return _plain_coupling(kept, moved, log_scale, shift)
    y, log_det = torch.ops.invertbench.affine_coupling(kept, moved, log_scale, shift)
    return y, log_det


def per_channel(vector: Tensor, x: Tensor) -> Tensor:
    """Return a vector (C,) as (C, 1, ...), to broadcast against x."""
    return vector.view(-1, *[1] * (x.ndim - 2))


def _kernel_serves(x: Tensor, *others: Tensor) -> bool:
    """Return whether the compiled operators support these and are faster: on a CPU, and in full precision."""
    if x.numel() < LEAST_ENTRIES or not x.is_cpu or torch.is_autocast_enabled("cpu"):
        return False
    return kernels.serve(x, *others)


def _plain_channels(x: Tensor, shift: Tensor, log_scale: Tensor) -> Tensor:
    return (x + per_channel(shift, x)) * per_channel(log_scale, x).exp()


def _plain_coupling(kept: Tensor, moved: Tensor, log_scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    return torch.cat([kept, moved * log_scale.exp() + shift], dim=1), log_scale.flatten(1).sum(1)
