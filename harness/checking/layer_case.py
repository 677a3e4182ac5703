"""A case of the checks: one class with its options, on one event shape, in one precision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from flows import seeded
from harness.core.layer_classes import kept_default_dtype
from harness.timing.operations import events, perturb
from layers import InvertibleLinear
from layers.base import push_identity

SCALES = (0.3, 0.1, 0.03, 0.01)
"""Scales of the noise on the weights; the first that leaves the map well conditioned is used."""

WELL_CONDITIONED = 1e3

FIRST_BATCH = 128
"""Events on which a layer that initialises from data is initialised: more than the entries of most shapes."""

MARGIN = 300.0
"""Allowed error in multiples of condition * eps. The faults that the checks look for are far larger."""

OFFSET_MARGIN = 16.0
"""The same for the rounding of a sum with a large offset b, in multiples of condition * eps * |b| / |W|."""


@dataclass(frozen=True)
class LayerCase:
    """One layer class with its options on one event shape, in one dtype, on one device, in training or in eval()."""

    cls: type[InvertibleLinear]
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float64
    options: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    training: bool = True
    batches: tuple[int, ...] = ()  # sizes in which the layer will be used, which the rules on batches try as well
    initialised: bool = True  # `initialise` is called after construction
    brief: bool = False  # on a large event, only the map, its inverse and its log-det are checked, unless it is slow

    def __str__(self) -> str:
        mode = "" if self.training else ", in eval()"
        return f"shape {self.shape}, {str(self.dtype).removeprefix('torch.')}{mode}"

    @property
    def trains(self) -> bool:
        """Return whether layers are trained in this precision on this device."""
        return self.dtype == torch.float32 or self.device != "cpu"

    @property
    def dim(self) -> int:
        """D, the number of entries of an event."""
        return math.prod(self.shape)

    def initial(self, seed: int = 0) -> InvertibleLinear:
        """Return the layer before training, its initial weights drawn from `seed`.

        It is constructed in its precision: a matrix drawn in float32, such as the base of an orthogonal
        parametrisation, has the rounding of float32 also after a conversion to float64.
        """
        with kept_default_dtype(self.dtype), seeded(seed, "layer"):
            layer = self.cls(self.shape, **self.options)
        layer.to(device=self.device, dtype=self.dtype).train(self.training)
        if self.initialised:
            with torch.no_grad():
                layer.initialise(self.first_batch())
        return layer

    def first_batch(self) -> Tensor:
        """Return the events on which the layer is initialised: not of mean 0 or standard deviation 1."""
        return 1 + 2 * self.events(FIRST_BATCH, seed=8)

    @torch.no_grad()
    def copy(self, layer: InvertibleLinear) -> InvertibleLinear:
        """Return a new layer with the parameters and buffers of another one, and nothing else of it."""
        fresh = replace(self, initialised=False).initial()
        held = dict([*layer.named_parameters(), *layer.named_buffers()])
        for name, value in (*fresh.named_parameters(), *fresh.named_buffers()):
            value.copy_(held[name])
        return fresh

    def perturbed(self, scale: float) -> InvertibleLinear:
        """Return the layer with noise on its weights, before any call."""
        layer = self.initial()
        perturb(layer, scale, torch.Generator().manual_seed(0))
        return layer

    @cached_property
    def _conditioning(self) -> tuple[float, float, float]:
        """The scale of the noise that `build` adds, the resulting condition number of W, and the size of b."""
        for scale in SCALES:
            layer = self.perturbed(scale)
            w = matrix(layer, self.dtype)
            condition = torch.linalg.cond(w).item()
            if condition < WELL_CONDITIONED:
                break
        return scale, condition, offset_size(layer, self.events(1), float(w.abs().max()))

    def build(self) -> InvertibleLinear:
        """Return the layer with weights away from initialisation: at an identity most faults are invisible."""
        return self.perturbed(self._conditioning[0])

    @property
    def condition(self) -> float:
        """The condition number of the built layer's W."""
        return self._conditioning[1]

    def tolerance(self, dtype: torch.dtype | None = None) -> float:
        """Return the relative error that rounding explains for the built layer."""
        return tolerance(dtype or self.dtype, self.condition, self._conditioning[2])

    def events(self, n: int = 3, seed: int = 1) -> Tensor:
        """Return a batch of n standard normal events."""
        return events(self.shape, n, dtype=self.dtype, device=torch.device(self.device), seed=seed)


def tolerance(dtype: torch.dtype, condition: float, offset: float) -> float:
    """Return the relative error that rounding explains, for an `offset_size` and a condition number of W."""
    return torch.finfo(dtype).eps * condition * (MARGIN + OFFSET_MARGIN * offset)


@torch.no_grad()
def offset_size(layer: InvertibleLinear, like: Tensor, size: float) -> float:
    """Return the largest |b| over the size of W x, or of W's entries."""
    return float(layer(torch.zeros_like(like))[0].abs().max()) / size if size > 0 else 0.0


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
