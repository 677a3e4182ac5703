"""A product of invertible linear layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import cast

import torch
from torch import Tensor, nn

from layers.base import InvertibleLinear


class Chain(InvertibleLinear):
    """Layers on one event shape, applied one after the other: the product of their matrices, the first one rightmost.

    Determinant: log|det| is the sum of theirs.
    Inverse: theirs, the last one first.

    Args:
        shape: event shape, that of every layer.
        layers: the first applied first; at least one.

    Raises:
        ValueError: a layer has another event shape.
    """

    def __init__(self, shape: tuple[int, ...], layers: Iterable[InvertibleLinear]) -> None:
        super().__init__(shape)
        self.layers = nn.ModuleList(layers)
        for layer in self:
            if layer.shape != self.shape:
                raise ValueError(
                    f"{self.label}: layer {layer.label} is for events {layer.shape}, the chain for {self.shape}; "
                    "use layers of one event shape"
                )

    def __iter__(self) -> Iterator[InvertibleLinear]:
        """Iterate over the layers, the first applied first."""
        return iter(cast("list[InvertibleLinear]", list(self.layers)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply every layer, and add up the log-determinants."""
        total = x.new_zeros(())
        for layer in self:
            x, log_det = layer(x)
            total = total + log_det
        return x, total

    def initialise(self, x: Tensor) -> None:
        """Initialise every layer on what arrives at it."""
        for layer in self:
            layer.initialise(x)
            x = layer(x)[0]

    def log_det(self) -> Tensor:
        """Add up the log-determinants."""
        return torch.stack([layer.log_det() for layer in self]).sum()

    def inverse(self, y: Tensor) -> Tensor:
        """Undo every layer, the last one first; each may have a faster way for a single call than its `inverter`."""
        for layer in reversed([*self]):
            y = layer.inverse(y)
        return y

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Prepare every layer's inverse; the callable applies them, the last layer's first."""
        inverters = [layer.inverter() for layer in reversed([*self])]

        def invert(y: Tensor) -> Tensor:
            for undo in inverters:
                y = undo(y)
            return y

        return invert

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return the product of the layers' matrices."""
        return reduce(torch.matmul, [layer.dense() for layer in reversed([*self])])

    def factors(self) -> list[tuple[str, Tensor]]:
        """Return the factors of every layer, the first applied first."""
        return [factor for layer in self for factor in layer.factors()]

    @property
    def remark(self) -> str | None:
        """Return the first remark of a layer, or None."""
        return next(filter(None, (layer.remark for layer in self)), None)
