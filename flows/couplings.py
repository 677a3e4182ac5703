"""Affine coupling: half of the channels is scaled and shifted by functions of the kept half."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from flows.affine import GateName, bounded_gate
from flows.attention import AttentionConditioner
from flows.conditioners import (
    Conditioner,
    GaussianConditioner,
    GlowConditioner,
    PointwiseConditioner,
    WeightNormConditioner,
)

Coupling = Literal["auto", "image", "glow", "sequence", "attention"]


class AffineCoupling(nn.Module):
    """y1 = x1, y2 = x2 * exp(log_scale(x1)) + shift(x1); the first `kept` channels are unchanged.

    log|det| = sum of log_scale, shape (N,); the inverse runs the same network, so it costs the same.

    Attributes:
        kept: number of unchanged channels, counted from the first.
        net: the conditioner, (N, kept, *spatial) -> log-scale and shift of the other channels.
    """

    def __init__(self, kept: int, net: Conditioner) -> None:
        super().__init__()
        self.kept = kept
        self.net = net

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map (N, C, *spatial) to the same shape; return y and log|det| of shape (N,)."""
        return self.net.couple(x, self.kept)

    def inverse(self, y: Tensor) -> Tensor:
        """Return x with x2 = (y2 - shift(y1)) * exp(-log_scale(y1))."""
        kept, moved = y[:, : self.kept], y[:, self.kept :]
        log_scale, shift = (value.to(y.dtype) for value in self.net(kept))
        return torch.cat([kept, (moved - shift) * torch.exp(-log_scale)], dim=1)

    def initialise(self, x: Tensor) -> None:
        """Initialise the network on data, if it has such an initialisation."""
        self.net.initialise(x[:, : self.kept])

    def extra_repr(self) -> str:
        """Return the number of kept channels, for repr()."""
        return f"kept={self.kept}"


class MaskedCoupling(nn.Module):
    """y = m x + (1 - m) (x * exp(log_scale(m x)) + shift(m x)): the entries under the mask m are unchanged.

    Real NVP's coupling (Dinh et al. 2017), for parts that are not halves of the channels, such as the fields of a
    checkerboard. log|det| = sum of (1 - m) log_scale, shape (N,); the inverse runs the same network.

    Attributes:
        mask: 1 for an unchanged entry, else 0; a buffer that broadcasts against (N, C, *spatial).
        net: the conditioner, (N, C, *spatial) with zeros off the mask -> log-scale and shift of all entries.
    """

    mask: Tensor

    def __init__(self, mask: Tensor, net: Conditioner) -> None:
        super().__init__()
        self.register_buffer("mask", mask)
        self.net = net

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map (N, C, *spatial) to the same shape; return y and log|det| of shape (N,)."""
        log_scale, shift = self._net(x)
        return x * log_scale.exp() + shift, log_scale.flatten(1).sum(1)

    def inverse(self, y: Tensor) -> Tensor:
        """Return x = (y - shift) * exp(-log_scale), both zero under the mask."""
        log_scale, shift = self._net(y)
        return (y - shift) * torch.exp(-log_scale)

    def initialise(self, x: Tensor) -> None:
        """Initialise the network on data, if it has such an initialisation."""
        self.net.initialise(x * self.mask)

    def _net(self, x: Tensor) -> tuple[Tensor, Tensor]:
        moved = 1 - self.mask
        log_scale, shift = self.net(x * self.mask)
        return log_scale * moved, shift * moved


def make_coupling(
    coupling: Coupling, shape: tuple[int, ...], width: int, gate: GateName = "published"
) -> AffineCoupling:
    """Return the coupling of a step on events of `shape`; with an odd number of channels it keeps the larger part.

    Args:
        coupling: "image" (weight-normalised convolutions), "glow" (convolutions with ActNorm), "sequence"
            (pointwise MLPs), "attention" (a transformer over the positions), or "auto": image for (C, H, W), sequence
            for (C, L). All serve both kinds.
        shape: (C, *spatial), at least two channels.
        width: hidden channels of the network.
        gate: "published" (each coupling's own) or "bounded" (`flows.affine.bounded_gate`).

    Raises:
        ValueError: an unknown coupling or gate, fewer than two channels, or no width.
    """
    if coupling not in get_args(Coupling):
        raise ValueError(f"coupling {coupling!r} is not known; use one of {', '.join(get_args(Coupling))}")
    if gate not in get_args(GateName):
        raise ValueError(f"gate {gate!r} is not known; use one of {', '.join(get_args(GateName))}")
    if width < 1:
        raise ValueError(f"width = {width}: a coupling network needs at least 1 hidden channel")
    kept, moved, axes = _halves(shape)
    if coupling == "auto":
        coupling = "image" if axes == 2 else "sequence"
    bounded = {"gate": bounded_gate} if gate == "bounded" else {}
    if coupling == "image":
        return AffineCoupling(kept, WeightNormConditioner(kept, moved, width, axes, **bounded))
    if coupling == "glow":
        return AffineCoupling(kept, GlowConditioner(kept, moved, width, axes, **bounded))
    if coupling == "attention":
        return AffineCoupling(kept, AttentionConditioner(kept, moved, width, math.prod(shape[1:]), **bounded))
    return AffineCoupling(kept, PointwiseConditioner(kept, moved, width, **bounded))


def make_split_prior(shape: tuple[int, ...]) -> AffineCoupling:
    """Return the learned prior of a split as a coupling that standardises the channels about to be factored out."""
    kept, moved, axes = _halves(shape)
    return AffineCoupling(kept, GaussianConditioner(kept, moved, axes))


def _halves(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the numbers of kept channels, of moved channels, and of spatial axes."""
    channels = shape[0]
    if channels < 2:
        raise ValueError(f"event shape {shape}: a coupling needs at least 2 channels; squeeze the event first")
    return channels - channels // 2, channels // 2, len(shape) - 1
