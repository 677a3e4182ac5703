"""The affine maps of a flow's step: of every channel (ActNorm), and of a coupling's moved channels.

Calls and passes over memory are most of their cost. On a CPU, if the compiled operators can be loaded
(`layers.kernels.load`), `invertbench::actnorm` is one call with one pass in either direction, and so is the coupling of
a compiled network (flows/coupled.py). Otherwise PyTorch computes them.

A gate is the log scale of a coupling as an elementwise function of a network's raw output s. The scale multiplies the
moved half on the way from x to z and divides it in the inverse, so a scale near 0 makes the inverse explode: below
about 1e-7, float32 cannot recover x from z.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from layers.kernels import load as kernels

GateName = Literal["published", "bounded"]
Gate = Callable[[Tensor], Tensor]


def sigmoid_gate(s: Tensor) -> Tensor:
    """Return log sigmoid(s + 2), scale in (0, 1): Glow (Kingma & Dhariwal 2018), ButterflyFlow's image coupling."""
    return F.logsigmoid(s + 2)


def doubled_gate(s: Tensor) -> Tensor:
    """Return log(2 sigmoid(s)), scale in (0, 2) and 1 at s = 0: Jet (Kolesnikov et al., TMLR 2025)."""
    return F.logsigmoid(s) + math.log(2)


def exponential_gate(s: Tensor) -> Tensor:
    """Return s, scale in (0, inf): ButterflyFlow's sequence coupling."""
    return s


def bounded_gate(s: Tensor) -> Tensor:
    """Return log(0.5 + sigmoid(s)), scale in (0.5, 1.5) and 1 at s = 0, accurate near 0 and finite everywhere.

    A coupling stretches by at most 1.5 and its inverse by at most 2, whatever the network returns: the modified affine
    coupling of Behrmann et al., "Understanding and Mitigating Exploding Inverses in Invertible Neural Networks"
    (AISTATS 2021). 0.5 + sigmoid(s) = 1 + tanh(s / 2) / 2, whose second term is in [-0.5, 0.5], and 0 if s is.
    """
    return torch.log1p(torch.tanh(s / 2) / 2)


def limited_gate(s: Tensor) -> Tensor:
    """Return s / (1 + |s| / log 1000), scale in (1e-3, 1e3): zuko's masked autoregressive flows."""
    return s / (1 + s.abs() / math.log(1000))


GATES: dict[GateName, Gate] = {"published": exponential_gate, "bounded": bounded_gate}
"""The gates of blocks and of maps of single entries."""
COMPILED: tuple[Gate, ...] = (exponential_gate, sigmoid_gate, bounded_gate)
"""The gates of `invertbench::affine_coupling` (csrc/affine/gates.h), in the order of their numbers."""


def affine_channels(x: Tensor, shift: Tensor, log_scale: Tensor) -> tuple[Tensor, Tensor]:
    """Return (x + shift) * exp(log_scale), x (N, C, *spatial), and log|det| = n * sum(log_scale) of n positions, ().

    Shift and log_scale are those of every channel, (C,).
    """
    if not kernels.serve_on_processor(x, shift, log_scale):
        y = (x + per_channel(shift, x)) * per_channel(log_scale, x).exp()
        return y, x.shape[2:].numel() * log_scale.sum()
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
