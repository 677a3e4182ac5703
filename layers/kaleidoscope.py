"""The kaleidoscope layer: products of a butterfly matrix and the transpose of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from layers.base import InvertibleLinear
from layers.butterfly import Butterfly


class Kaleidoscope(InvertibleLinear, name="kaleidoscope"):
    r"""Kaleidoscope matrix over all D entries of an event, (B_1 B'_1^T) ... (B_w B'_w^T); no bias.

    B and B' are butterfly matrices, each with weights of its own: the factors that `layers.butterfly` has on D by
    default, in B'^T from the first to the last and in B back. A butterfly and its transpose have the same support in
    reverse order, so that B'^T needs no transposition. One pair (w = 1) holds every permutation of 2^k entries and
    every circulant matrix (with complex weights), and some width w every sparse structured matrix, in nearly as few
    numbers. All factors start at the identity. The paper pads a D that is no power of two, which would not be
    invertible on the event.

    Determinant: log|det| = sum of log|ad - bc| over the 2x2 matrices of all factors.
    Inverse: the pairs in reverse order, each matrix in closed form.
    Parameters: 4 w D for each level of 2x2 matrices.
    Singular cases: ad = bc anywhere: log|det| = -inf, and the inverse is not finite.

    Family: butterflies
    Cost:
        forward: 4 w D log2(D) multiply-adds for D a power of two, by the butterfly's compiled kernels on a CPU
        inverse: the same
        log-det: 3 w D operations for each level
    Shapes: every (C, L) and (C, H, W); it mixes what the butterfly's default factors mix
    Source: Kaleidoscope (Dao et al., ICLR 2020)

    Args:
        shape: event shape.
        width: w, the number of pairs.

    Raises:
        ValueError: the width is not a positive whole number.
    """

    def __init__(self, shape: tuple[int, ...], *, width: int = 1) -> None:
        super().__init__(shape)
        if not isinstance(width, int) or isinstance(width, bool) or width < 1:
            raise ValueError(f"kaleidoscope: width = {width!r} is no number of pairs; use a whole number from 1 up")
        self.pairs = nn.ModuleList(Butterfly(self.shape, bi_direction=True) for _ in range(width))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply every pair; see the class for the log-det."""
        self.check_event(x)
        y, log_det = x, x.new_zeros(())
        for pair in self.pairs:
            y, term = pair(y)
            log_det = log_det + term
        return y, log_det

    def inverse(self, y: Tensor) -> Tensor:
        """Undo every pair, the last one first."""
        self.check_event(y)
        for pair in reversed(self._butterflies()):
            y = pair.inverse(y)
        return y

    @torch.no_grad()
    def inverter(self) -> Callable[[Tensor], Tensor]:
        """The inverters of the pairs, the last one first."""
        inverters = [pair.inverter() for pair in reversed(self._butterflies())]

        def invert(y: Tensor) -> Tensor:
            self.check_event(y)
            for undo in inverters:
                y = undo(y)
            return y

        return invert

    @torch.no_grad()
    def dense(self) -> Tensor:
        """The product of the pairs' matrices."""
        product, *others = [pair.dense() for pair in self._butterflies()]
        for matrix in others:
            product = matrix @ product
        return product

    def extra_repr(self) -> str:
        """Shape and width."""
        return f"{super().extra_repr()}, width={len(self.pairs)}"

    def _butterflies(self) -> list[Butterfly]:
        return [cast(Butterfly, pair) for pair in self.pairs]
