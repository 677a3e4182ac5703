"""A case of the checks: one class with its options, on one event shape, in one precision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from flows import seeded
from harness.timing.operations import perturb
from layers import InvertibleLinear
from layers.base import push_identity

SCALES = (0.3, 0.1, 0.03, 0.01)
"""Scales of the noise on the weights; the first that leaves the map well conditioned is used."""

WELL_CONDITIONED = 1e3

MARGIN = 300.0
"""Allowed error in multiples of condition * eps. The faults that the checks look for are far larger."""


@dataclass(frozen=True)
class LayerCase:
    """One layer class with its options on one event shape, in one dtype, on one device, in training or in eval()."""

    cls: type[InvertibleLinear]
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float64
    options: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    training: bool = True

    def __str__(self) -> str:
        mode = "" if self.training else ", in eval()"
        return f"shape {self.shape}, {str(self.dtype).removeprefix('torch.')}{mode}"

    def initial(self, seed: int = 0) -> InvertibleLinear:
        """Return the layer as constructed, its initial weights drawn from `seed`."""
        with seeded(seed, "layer"):
            layer = self.cls(self.shape, **self.options)
        return layer.to(device=self.device, dtype=self.dtype).train(self.training)

    def perturbed(self, scale: float) -> InvertibleLinear:
        """Return the layer with noise on its weights, before any call."""
        layer = self.initial()
        perturb(layer, scale, torch.Generator().manual_seed(0))
        return layer

    @cached_property
    def _conditioning(self) -> tuple[float, float]:
        """The scale of the noise that `build` adds, and the resulting condition number of W."""
        for scale in SCALES:
            condition = torch.linalg.cond(matrix(self.perturbed(scale), self.dtype)).item()
            if condition < WELL_CONDITIONED:
                break
        return scale, condition

    def build(self) -> InvertibleLinear:
        """Return the layer with weights away from initialisation: at an identity most faults are invisible."""
        return self.perturbed(self._conditioning[0])

    @property
    def condition(self) -> float:
        """The condition number of the built layer's W."""
        return self._conditioning[1]

    def tolerance(self, dtype: torch.dtype | None = None) -> float:
        """Return the relative error that rounding explains for the built layer: a multiple of condition * eps."""
        return MARGIN * torch.finfo(dtype or self.dtype).eps * self.condition

    def events(self, n: int = 3, seed: int = 1) -> Tensor:
        """Return a batch of n standard normal events."""
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(n, *self.shape, generator=generator, dtype=torch.float64)
        return x.to(device=self.device, dtype=self.dtype)


def matrix(layer: InvertibleLinear, dtype: torch.dtype) -> Tensor:
    """Return W (D, D) in float64, by pushing the identity in `dtype` through `forward`."""
    return push_identity(layer, dtype=dtype).double()


@torch.no_grad()
def inverse_matrix(layer: InvertibleLinear, dtype: torch.dtype) -> Tensor:
    """Return the linear part (D, D) of `inverse` in float64, by pushing the identity in `dtype` through it."""
    like = push_identity(layer, dtype=dtype)
    basis = torch.eye(layer.dim, dtype=like.dtype, device=like.device).reshape(layer.dim, *layer.shape)
    origin = layer.inverse(torch.zeros_like(basis[:1]))
    return (layer.inverse(basis) - origin).reshape(layer.dim, layer.dim).T.double()


def relative_error(value: Tensor, truth: Tensor) -> float:
    """Return the largest deviation over the largest entry of `truth`; inf if it is not finite."""
    error = (value.detach() - truth.detach()).abs().max().item()
    scale = truth.detach().abs().max().item()
    if error == 0:
        return 0.0
    return error / scale if math.isfinite(error) and scale > 0 else math.inf
