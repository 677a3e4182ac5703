"""The maps of single entries in couplings and autoregressive blocks of tables: affine, or a rational-quadratic spline.

Each entry has `size` raw numbers, which a network computes; at zero the map is the identity.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from flows.affine import GATES, Gate, GateName
from layers.base import check_choice

MapName = Literal["affine", "spline"]

BOUND = 3.0  # entries beyond it are unchanged; that of the paper, for columns of unit variance


class Affine:
    """y = x exp(a) + b, with raw numbers b and s, and a the log-gate of s."""

    size = 2

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def forward(self, x: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Return y and a."""
        shift, s = raw.unbind(-1)
        log_scale = self.gate(s)
        return x * log_scale.exp() + shift, log_scale

    def inverse(self, y: Tensor, raw: Tensor) -> Tensor:
        """Return (y - b) exp(-a)."""
        shift, s = raw.unbind(-1)
        return (y - shift) * (-self.gate(s)).exp()


class Spline:
    """The monotonic rational-quadratic spline of Durkan et al., "Neural Spline Flows" (NeurIPS 2019).

    On [-B, B] are `bins` bins, with widths w_k, heights h_k and slopes d_k at their ends; outside, y = x. In a bin with
    t = (x - x_k) / w_k and the mean slope m = h_k / w_k,

        y = y_k + h_k (m t^2 + d_k t (1 - t)) / (m + (d_k + d_(k+1) - 2 m) t (1 - t)).

    Of the 3 bins - 1 raw numbers come the widths and heights, each 2 B times a softmax with a smallest share, and the
    inner slopes, a least slope plus softplus; the outer ones are 1. The inverse is the root of a quadratic in t, in the
    form without cancellation.

    In float32 both ways are exact for an x and a y that are at most 2e-6 away, whatever the raw numbers (measured).
    But a bin may be nearly flat, with slopes of the order of m^2 / d: with the limits of the paper, 1e-8, and then x
    cannot be computed from a y in float32, whatever the formula. With shares of at least half of those of equal bins,
    and slopes at knots of at least 0.1, it is 2.1e-3 with 8 bins.

    Not as in nflows: raw numbers of zero give the identity, and slopes have an upper bound, the inverse of the lower.

    Args:
        bins: number of bins, from 2 to 500.
        share: the smallest width and height of a bin, as a share of the interval.
        slope: the least slope at a knot.

    Raises:
        ValueError: another number of bins.
    """

    def __init__(self, bins: int, share: float = 1e-3, slope: float = 1e-3) -> None:
        if not 2 <= bins <= 500:
            raise ValueError(f"bins = {bins}: a spline has 2 to 500 bins")
        self.bins, self.share, self.slope = bins, share, slope
        self.size = 3 * bins - 1
        self.shift = math.log(math.expm1(1 - slope))  # slope + softplus(shift) = 1

    def knots(self, raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return x, y and slope of the knots, each (*, bins + 1)."""
        widths, heights, slopes = raw.split([self.bins, self.bins, self.bins - 1], dim=-1)
        inner = (self.slope + F.softplus(slopes + self.shift)).clamp(max=1 / self.slope)
        return self._places(widths), self._places(heights), F.pad(inner, (1, 1), value=1.0)

    def forward(self, x: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Return y and log dy/dx, which is 0 outside of the bins."""
        knots = self.knots(raw)
        beyond = x.abs() > BOUND
        inside = x.masked_fill(beyond, 0.0)
        left, width, low, height, first, last = _bins(inside, knots[0], knots)
        mean, t = height / width, (inside - left) / width
        both = t * (1 - t)
        divisor = mean * (1 - 2 * both) + (first + last) * both  # of positive terms: no cancellation
        y = low + height * (mean * t.square() + first * both) / divisor
        rise = 2 * mean * both + first * (1 - t).square() + last * t.square()
        log_slope = 2 * mean.log() + rise.log() - 2 * divisor.log()
        return torch.where(beyond, x, y), log_slope.masked_fill(beyond, 0.0)

    def inverse(self, y: Tensor, raw: Tensor) -> Tensor:
        """Return x by the quadratic formula, of which the form is used in which b and the root do not cancel."""
        knots = self.knots(raw)
        beyond = y.abs() > BOUND
        inside = y.masked_fill(beyond, 0.0)
        left, width, low, height, first, last = _bins(inside, knots[1], knots)
        mean, share = height / width, (inside - low) / height
        b = first * (1 - share) + (2 * mean - last) * share
        a, c = mean - b, -share * mean
        root = (b.square() - 4 * a * c).clamp(min=0).sqrt()
        t = torch.where(b < 0, root - b, -2 * c) / torch.where(b < 0, 2 * a, b + root)
        return torch.where(beyond, y, left + width * t)

    def _places(self, raw: Tensor) -> Tensor:
        """Return the knots of bins on [-B, B] from the logits of their sizes, (*, bins) -> (*, bins + 1)."""
        shares = self.share + (1 - self.share * self.bins) * raw.softmax(-1)
        inner = (2 * shares.cumsum(-1)[..., :-1] - 1) * BOUND
        return F.pad(F.pad(inner, (1, 0), value=-BOUND), (0, 1), value=BOUND)


EntryMap = Affine | Spline
"""A monotonic map of each entry x, (*,), by raw numbers (*, size)."""


def make_map(name: MapName, gate: GateName, bins: int) -> EntryMap:
    """Return the map of this name, with scales or slopes as published, or bounded so that float32 can invert the map.

    Affine: exp(s), or in (0.5, 1.5). Spline: the limits of the paper, or bins of at least half the mean size and slopes
    at knots in [0.1, 10].

    Raises:
        ValueError: an unknown map or gate, or a number of bins that no spline has.
    """
    check_choice("flow", "map", name, get_args(MapName))
    check_choice("flow", "gate", gate, get_args(GateName))
    if name == "affine":
        return Affine(GATES[gate])
    return Spline(bins, 0.5 / bins, 0.1) if gate == "bounded" else Spline(bins)


def _bins(value: Tensor, places: Tensor, knots: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Return left, width, low, height and both slopes of the bin of each value, which is found among `places`."""
    number = (value[..., None] >= places[..., 1:-1]).sum(-1, keepdim=True)
    (left, right), (low, high), slopes = [
        (knot.gather(-1, number)[..., 0], knot.gather(-1, number + 1)[..., 0]) for knot in knots
    ]
    return left, right - left, low, high - low, *slopes
