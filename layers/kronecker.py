"""The Kronecker layer: a dense matrix for each axis of an event."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from layers.base import InvertibleLinear
from layers.chain import Chain
from layers.conv1x1 import random_orthogonal
from layers.linalg.mixing import mix_channels
from layers.linalg.plu import PLUMatrices


class Kronecker(Chain, name="kronecker"):
    r"""A dense matrix for each axis of an event, applied along it: W = W_C (x) W_T or W_C (x) W_H (x) W_W; no bias.

    Each matrix is learned by its factors P, L, U and s, as in `conv1x1` and `monarch`. That of the channels starts as a
    random orthogonal matrix (Haar), as in `conv1x1`, the others as identities. An axis of one entry has none, unless
    the event has one entry. Only the product of the scales of the matrices counts.

    Determinant: log|det| = sum over axes of (D / d) log|det W_axis| with log|det W_axis| = sum(log_s), d the length.
    Inverse: W^-1 of each axis, by a pair of triangular solves.
    Parameters: 2 d^2 + d for each axis, of which d^2 reach the map.
    Singular cases: none, in exact arithmetic.

    Family: block-diagonal factors
    Cost:
        forward: D (c + t) or D (c + h + w) multiply-adds, after O(d^3) once per call for each axis
        inverse: the same
        log-det: c + t or c + h + w additions
    Shapes: every (C, L) and (C, H, W); memory for d x d numbers
    Source: linear maps along modes of a tensor (De Lathauwer, De Moor and Vandewalle, 2000); PLU: Glow (Kingma and
    Dhariwal, NeurIPS 2018)
    """

    replaces_mixer = True

    def __init__(self, shape: tuple[int, ...]) -> None:
        axes = [axis for axis, size in enumerate(shape) if size != 1] or [0]
        super().__init__(shape, (_AxisMatrix(shape, axis) for axis in axes))


class _AxisMatrix(InvertibleLinear):
    """One matrix along an axis of an event, by PLU; axis 0 is that of the channels."""

    def __init__(self, shape: tuple[int, ...], axis: int) -> None:
        super().__init__(shape)
        self.size, self.after = self.shape[axis], math.prod(self.shape[axis + 1 :])
        start = random_orthogonal(self.size) if axis == 0 else torch.eye(self.size)
        self.matrix = PLUMatrices(start[None])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the matrix to every vector along the axis."""
        return self._along(self.matrix.matrices()[0], x), self.log_det()

    def log_det(self) -> Tensor:
        """Return log|det| of the matrix, times the number of vectors along the axis."""
        return self.dim // self.size * self.matrix.log_abs_dets().sum()

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Invert the matrix once."""
        return partial(self._along, self.matrix.inverse_matrices()[0])

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return the Kronecker product of the matrix with identities."""
        matrix = self.matrix.matrices()[0]
        before, after = (torch.eye(size).to(matrix) for size in (self.dim // self.size // self.after, self.after))
        return torch.kron(torch.kron(before, matrix), after)

    def _along(self, matrix: Tensor, x: Tensor) -> Tensor:
        return mix_channels(matrix, x.reshape(-1, self.size, self.after)).view(x.shape)
