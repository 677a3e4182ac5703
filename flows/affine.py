"""The affine maps of a flow's step: of every channel (ActNorm), and of a coupling's moved channels.

Calls and passes over memory are most of their cost. On a CPU, if the compiled operators can be loaded
(`layers.kernels.load`), `invertbench::actnorm` is one call with one pass in either direction, and so is the coupling of
a compiled network (flows/coupled.py). Otherwise PyTorch computes them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from layers.kernels import load as kernels


def affine_channels(x: Tensor, shift: Tensor, log_scale: Tensor) -> tuple[Tensor, Tensor]:
    """Return (x + shift) * exp(log_scale), x (N, C, *spatial), and log|det| = n * sum(log_scale) of n positions, ().

    Args:
        x: (N, C, *spatial).
        shift, log_scale: of every channel, (C,).
    """
    if not kernels.serve_on_processor(x, shift, log_scale):
        return _plain_channels(x, shift, log_scale)
    y, log_det = torch.ops.invertbench.actnorm(x, shift, log_scale)
    return y, log_det


def affine_coupling(kept: Tensor, moved: Tensor, log_scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Return kept and moved * exp(log_scale) + shift, joined along the channels, and the sums of log_scale.

    Computed in the precision of `moved`: autocast gives a network's outputs in a lower one.

    Args:
        kept: (N, kept, *spatial).
        moved, log_scale, shift: (N, moved, *spatial).

    Returns:
        (N, kept + moved, *spatial), and (N,).
    """
    log_scale, shift = log_scale.to(moved.dtype), shift.to(moved.dtype)
    return torch.cat([kept, moved * log_scale.exp() + shift], dim=1), log_scale.flatten(1).sum(1)


def per_channel(vector: Tensor, x: Tensor) -> Tensor:
    """Return a vector (C,) as (C, 1, ...), to broadcast against x."""
    return vector.view(-1, *[1] * (x.ndim - 2))


def _plain_channels(x: Tensor, shift: Tensor, log_scale: Tensor) -> tuple[Tensor, Tensor]:
    y = (x + per_channel(shift, x)) * per_channel(log_scale, x).exp()
    return y, x.shape[2:].numel() * log_scale.sum()
