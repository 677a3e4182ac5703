"""Masked autoregressive flow (Papamakarios et al., NeurIPS 2017), on flattened events."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from flows.actnorm import ActNorm
from flows.affine import limited_gate
from flows.masked import MaskedBlock
from flows.protocol import Flow, Shape, seeded
from flows.splines import Affine
from layers.base import check_whole


class Flatten(nn.Module):
    """(N, *shape) -> (N, D), entries in memory order; log|det| = 0."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the flat event, and 0 of shape ()."""
        return x.flatten(1), x.new_zeros(())

    def inverse(self, y: Tensor) -> Tensor:
        """Map (N, D) to (N, *shape)."""
        return y.reshape(-1, *self.shape)


class MAF(Flow):
    """MAF on flattened events: `steps` masked affine blocks, in alternating order of the entries.

    In place of the paper's batch normalisation between blocks, an ActNorm of one scale and shift per entry precedes
    each, initialised on the first batch and then trained. Scales are bounded as in zuko. `levels` has no meaning here.

    Args:
        shape: of the events, any.
        levels: ignored; there are no levels.
        steps: blocks (the paper's 5 or 10).
        width: units of each hidden layer (the paper's 1024).
        seed: draws the initial weights.
        hidden_layers: number of hidden layers of each block's network.
    """

    def __init__(
        self, shape: Shape, *, levels: int, steps: int, width: int, seed: int = 0, hidden_layers: int = 1
    ) -> None:
        super().__init__()
        check_whole("maf", "hidden_layers", hidden_layers)
        self.shape, self.dim = tuple(shape), math.prod(shape)
        self.level_shapes = [(self.dim,)]
        parts: list[tuple[str, nn.Module]] = [("flatten", Flatten(self.shape))]
        for step in range(steps):
            order = torch.arange(self.dim)
            parts.append((f"step{step}/actnorm", ActNorm(self.dim)))
            with seeded(seed, f"step{step}/autoregressive"):
                block = MaskedBlock(order.flip(0) if step % 2 else order, width, hidden_layers, Affine(limited_gate))
            parts.append((f"step{step}/autoregressive", block))
        self.set_levels([parts])
