"""Affine coupling: half of the channels is scaled and shifted by functions of the kept half."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
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
    ReachingConditioner,
    WeightNormConditioner,
)
from layers.base import check_choice, check_whole

Coupling = Literal["auto", "image", "glow", "sequence", "attention"]
Reach = Literal[1, 3, 9, 27, 81, "all"]
LEAST_ATTENTION = 4  # channels, which layer normalisation centres and scales


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
    coupling: Coupling, shape: tuple[int, ...], width: int, gate: GateName = "published", reach: Reach = 1
) -> AffineCoupling:
    """Return the coupling of a step on events of `shape`; with an odd number of channels it keeps the larger part.

    Args:
        coupling: "image" (weight-normalised convolutions), "glow" (convolutions with ActNorm), "sequence"
            (pointwise MLPs), "attention" (a transformer over the positions), or "auto": image for (C, H, W), sequence
            for (C, L). All serve both kinds.
        shape: (C, *spatial), at least two channels.
        width: hidden channels of the network.
        gate: "published" (that of each coupling's paper) or "bounded" (`flows.affine.bounded_gate`).
        reach: number of positions that the "sequence" coupling sees, the middle one that which it moves: 1 (the MLPs),
            3, 9, 27 or 81 (the same with dilated convolutions), or "all" (the transformer of "attention"). These have
            the width at which they have most nearly as many parameters as the MLPs at `width`.

    Raises:
        ValueError: an unknown coupling, gate or reach, a reach of another coupling, fewer than two channels, no width,
            or one that leaves none for attention.
    """
    check_choice("flow", "coupling", coupling, get_args(Coupling))
    check_choice("flow", "gate", gate, get_args(GateName))
    check_choice("flow", "reach", reach, get_args(Reach))
    check_whole("flow", "width", width)
    kept, moved, axes = _halves(shape)
    if coupling == "auto":
        coupling = "image" if axes == 2 else "sequence"
    if reach != 1 and (coupling != "sequence" or axes != 1):
        raise ValueError(
            f"reach {reach!r} on events {shape} with coupling {coupling!r}: only couplings of sequences (channels, "
            "length) have a reach; use coupling: sequence, or leave reach at 1"
        )
    networks: dict[Coupling, Callable[..., Conditioner]] = {
        "image": partial(WeightNormConditioner, kept, moved, axes=axes),
        "glow": partial(GlowConditioner, kept, moved, axes=axes),
        "sequence": partial(PointwiseConditioner, kept, moved),
        "attention": partial(AttentionConditioner, kept, moved, positions=math.prod(shape[1:])),
    }
    make = networks[coupling]
    if reach != 1:
        wanted = _parameters(make, width)
        make = networks["attention"] if reach == "all" else partial(ReachingConditioner, kept, moved, reach=reach)
        narrow = _width_of(make, wanted, width)
        if reach == "all" and narrow < LEAST_ATTENTION:
            raise ValueError(
                f"reach all on events {shape} at width {width}: attention of as many parameters has a width of "
                f"{narrow}, and needs at least {LEAST_ATTENTION}; use a larger width, or another reach"
            )
        width = narrow
    return AffineCoupling(kept, make(width=width, **({"gate": bounded_gate} if gate == "bounded" else {})))


def make_split_prior(shape: tuple[int, ...]) -> AffineCoupling:
    """Return the learned prior of a split as a coupling that standardises the channels about to be factored out."""
    kept, moved, axes = _halves(shape)
    return AffineCoupling(kept, GaussianConditioner(kept, moved, axes))


def _parameters(make: Callable[..., Conditioner], width: int) -> int:
    """Return how many parameters a network of this width has, without drawing its weights."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in make(width=width).parameters())


def _width_of(make: Callable[..., Conditioner], parameters: int, most: int) -> int:
    """Return the width, 1 to `most`, at which a network has most nearly so many parameters."""
    above = bisect_left(range(1, most), parameters, key=partial(_parameters, make)) + 1
    return min(max(1, above - 1), above, key=lambda width: abs(_parameters(make, width) - parameters))


def _halves(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the numbers of kept channels, of moved channels, and of spatial axes."""
    channels = shape[0]
    if channels < 2:
        raise ValueError(f"event shape {shape}: a coupling needs at least 2 channels; squeeze the event first")
    return channels - channels // 2, channels // 2, len(shape) - 1
