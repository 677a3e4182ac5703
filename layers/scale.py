"""A control: a scale for each entry."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from layers.base import InvertibleLinear


class Scale(InvertibleLinear, name="scale"):
    """A scale for each of the D entries of an event, y = exp(s) x; mixes nothing.

    Data whose entries vary by different amounts, as the border and the middle of a digit do, gain from it. So does any
    layer with separate weights for each entry; this control separates that gain from the gain by mixing.

    Determinant: log|det| = sum(s).
    Inverse: x = exp(-s) y.
    Parameters: D, from 0, so that the layer starts as the identity.
    Singular cases: none.

    Family: controls
    Cost:
        forward: D multiplications
        inverse: the same
        log-det: D additions
    Shapes: every (C, L) and (C, H, W)
    Source: the last layer of NICE (Dinh et al., 2015)
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.log_scale = nn.Parameter(torch.zeros(self.shape))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return exp(s) x and sum(s)."""
        return x * self.log_scale.exp(), self.log_det()

    def log_det(self) -> Tensor:
        """Return sum(s)."""
        return self.log_scale.sum()

    def inverse(self, y: Tensor) -> Tensor:
        """Return exp(-s) y."""
        return y * (-self.log_scale).exp()

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return the diagonal matrix of the scales."""
        return self.log_scale.exp().flatten().diag()
