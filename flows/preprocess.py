"""Map raw lattice values to the flow's input, with the exact Jacobian, which bits per dimension depends on.

Raw values are whole numbers (pixels 0..levels-1, ADC counts). `dequantise` spreads each over its cell of width
1, and a `Preprocessing` maps the result v to the flow's input x:

    log p(v) = log p_flow(x) + log|det dx/dv|,    bits/dim = -log p(v) / (D log 2)

Averaged over the noise, log p(v) is a lower bound on the log-probability of the lattice point, hence at most 0.
For 8-bit pixels on [-1, 1) the formula is the usual (NLL + D log 128) / (D log 2) with NLL = -log p_flow(x).
"""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import Tensor, nn

Number = TypeVar("Number", float, Tensor)


def dequantise(values: Tensor, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32) -> Tensor:
    """Add fresh noise, uniform on [0, 1), to values on a lattice of step 1.

    Args:
        values: whole numbers of any dtype and shape.
        generator: draws the noise, on its own device; None uses the global generator of the values' device.
        dtype: of the noise and the result.

    Returns:
        v with values <= v < values + 1 for every entry: rounding never leaves the cell. In float32 the noise
        has 24 bits minus those that the value itself needs.
    """
    device = values.device if generator is None else generator.device
    noise = torch.rand(values.shape, dtype=dtype, device=device, generator=generator).to(values.device)
    lattice = values.to(dtype)
    return torch.minimum(lattice + noise, torch.nextafter(lattice + 1, lattice))


def bits_per_dim(log_prob_raw: Number, dim: int) -> Number:
    """Return -log p(v) / (D log 2) from the log-likelihood of raw values (lattice of step 1) in nats."""
    return -log_prob_raw / (dim * math.log(2))


class AffineRange(nn.Module):
    """[low, high] -> [-1, 1], per channel or for all: x = 2 (v - low) / (high - low) - 1.

    log|det| = n * sum over channels of log(2 / (high - low)).

    Args:
        low: smallest value, shape () or (C,).
        high: largest value, of the same shape, above low.
    """

    low: Tensor
    high: Tensor

    def __init__(self, low: Tensor, high: Tensor) -> None:
        super().__init__()
        low, high = torch.as_tensor(low, dtype=torch.float64), torch.as_tensor(high, dtype=torch.float64)
        if low.shape != high.shape or low.ndim > 1 or not bool(((low < high) & (high - low).isfinite()).all()):
            raise ValueError(
                f"range {low.tolist()} to {high.tolist()}: finite, both one number or one per channel, low below high"
            )
        self.register_buffer("low", low)
        self.register_buffer("high", high)

    def forward(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Map float64 (N, C, *spatial) to x; return x and log|det| of shape ()."""
        low, width = self._range(v)
        return 2 * (v - low) / width - 1, (2 / width).log().expand(v.shape[1:]).sum()

    def inverse(self, x: Tensor) -> Tensor:
        """Return v = low + (x + 1) / 2 * (high - low)."""
        low, width = self._range(x)
        return low + (x + 1) / 2 * width

    def _range(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return low and high - low in float64, to broadcast against x."""
        low, high = torch.stack([self.low, self.high]).double().view(2, -1, *[1] * (x.ndim - 2))
        return low, high - low


class Logit(nn.Module):
    """[0, levels] -> the line: p = margin + (1 - 2 margin) v / levels, x = log p - log(1 - p).

    log|det| = sum of log((1 - 2 margin) / levels) - log p - log(1 - p), shape (N,). 1 - p is computed from
    levels - v, so neither end cancels. A v for which p is not inside (0, 1) gives NaN.
    """

    def __init__(self, levels: int, margin: float) -> None:
        super().__init__()
        if levels < 2 or not 0 < margin < 0.5:
            raise ValueError(f"levels = {levels}, margin = {margin}: at least 2, and between 0 and 0.5, such as 1e-6")
        self.levels = levels
        self.margin = margin

    def forward(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Map float64 (N, ...) to x; return x and log|det| of shape (N,)."""
        slope = (1 - 2 * self.margin) / self.levels
        log_p = (self.margin + slope * v).log()
        log_q = (self.margin + slope * (self.levels - v)).log()
        return log_p - log_q, (math.log(slope) - log_p - log_q).flatten(1).sum(1)

    def inverse(self, x: Tensor) -> Tensor:
        """Return v = levels * (sigmoid(x) - margin) / (1 - 2 margin); beyond the ends of the data for extreme x."""
        return self.levels * (torch.sigmoid(x) - self.margin) / (1 - 2 * self.margin)


class Asinh(nn.Module):
    """The line to itself, per channel: x = asinh((v - center) / scale), linear near the center, log |v| in the tails.

    A channel that is not bent keeps x = (v - center) / scale. log|det| = -sum of log(scale), and in bent channels of
    log(1 + ((v - center) / scale)^2) / 2, shape (N,).

    Args:
        center, scale: shape (C,), finite, each scale above 0.
        bent: of each channel whether it is bent, (C,); by default all are.
    """

    center: Tensor
    scale: Tensor
    bent: Tensor

    def __init__(self, center: Tensor, scale: Tensor, bent: Tensor | None = None) -> None:
        super().__init__()
        center, scale = torch.as_tensor(center, dtype=torch.float64), torch.as_tensor(scale, dtype=torch.float64)
        if center.shape != scale.shape or center.ndim != 1 or not bool((scale > 0).all()):
            raise ValueError(f"center {center.tolist()}, scale {scale.tolist()}: one for each channel, scales above 0")
        self.register_buffer("center", center)
        self.register_buffer("scale", scale)
        self.register_buffer("bent", torch.ones_like(center, dtype=torch.bool) if bent is None else bent)

    def forward(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Map float64 (N, C, *spatial) to x; return x and log|det| of shape (N,)."""
        center, scale, bent = self._channels(v)
        z = (v - center) / scale
        slope = scale.log() + torch.where(bent, 0.5 * z.square().log1p(), 0.0)
        return torch.where(bent, z.asinh(), z), -slope.flatten(1).sum(1)

    def inverse(self, x: Tensor) -> Tensor:
        """Return v = center + scale * sinh(x), of channels that are not bent center + scale * x."""
        center, scale, bent = self._channels(x)
        return center + scale * torch.where(bent, x.sinh(), x)

    def _channels(self, x: Tensor) -> list[Tensor]:
        return [value.view(-1, *[1] * (x.ndim - 2)) for value in (self.center, self.scale, self.bent)]


class Preprocessing(nn.Module):
    """The bijection from continuous raw values v to the flow's input x.

    It is computed in float64, because in float32 the Jacobian of the logit alone is off by up to 0.03 nats
    per pixel; values come back in the dtype of the input, the log-determinant in float64.
    """

    def __init__(self, bijection: AffineRange | Asinh | Logit) -> None:
        super().__init__()
        self.bijection = bijection

    def forward(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Map (N, C, *spatial) to x of the same shape and dtype; return x and log|det dx/dv|, (N,), float64."""
        _check_floating(v)
        x, log_det = self.bijection(v.double())
        return x.to(v.dtype), log_det.expand(len(x))

    def inverse(self, x: Tensor) -> Tensor:
        """Map (N, C, *spatial) to continuous v, whose cell is that of the whole number below it."""
        _check_floating(x)
        return self.bijection.inverse(x.double()).to(x.dtype)


def scale_pixels(levels: int) -> Preprocessing:
    """Map cells of pixels 0..levels-1, so [0, levels), to [-1, 1): x = 2 v / levels - 1."""
    return Preprocessing(AffineRange(torch.tensor(0.0), torch.tensor(float(levels))))


def logit_pixels(levels: int, margin: float = 1e-6) -> Preprocessing:
    """Map cells of pixels 0..levels-1 to the real line, by the logit of the rescaled value (see `Logit`)."""
    return Preprocessing(Logit(levels, margin))


def _check_floating(x: Tensor) -> None:
    """Raise ValueError for whole numbers: a density needs continuous values."""
    if not x.is_floating_point():
        raise ValueError(f"input has dtype {x.dtype}; a density needs continuous values: dequantise first")
