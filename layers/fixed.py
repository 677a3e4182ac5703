"""Controls: orthogonal maps that learn nothing, such as a random permutation of all entries."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from layers.base import InvertibleLinear, check_choice
from layers.linalg.transforms import dct, dct_matrix, inverse_dct


class Fixed(InvertibleLinear, name="fixed"):
    r"""A fixed orthogonal map without parameters, to compare with a learned layer of the same reach.

    ``map="permutation"``: y = x[p] over all D entries, with p drawn uniformly. ``map="dct"``: the orthonormal cosine
    transform (DCT-II) of each channel over its positions. ``map="turn"``: the positions in reverse order, every channel
    alike.

    Determinant: log|det| = 0.
    Inverse: the inverse permutation, or the transposed transform.
    Parameters: none; the permutation is a buffer.
    Singular cases: none.

    Family: controls
    Cost:
        forward: D moves (permutation, turn), O(D log n) (dct)
        inverse: the same
        log-det: none, it is 0
    Shapes: every (C, L) and (C, H, W)
    Source: fixed permutations: NICE (Dinh et al., 2015), RealNVP (Dinh et al., 2017); DCT: Ahmed et al. (1974)

    Args:
        map: "permutation", "dct" or "turn".
    """

    order: Tensor
    precision: Tensor

    def __init__(self, shape: tuple[int, ...], *, map: Literal["permutation", "dct", "turn"] = "permutation") -> None:
        super().__init__(shape)
        check_choice("fixed", "map", map, ("permutation", "dct", "turn"))
        self.map = map
        self.axes = len(self.shape) - 1
        if map == "permutation":
            self.register_buffer("order", torch.randperm(self.dim))
        # Without a parameter, the precision of the layer is that of this.
        self.register_buffer("precision", torch.empty(0), persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Move the entries or transform the channels; the log-det is 0."""
        if self.map == "permutation":
            y = x.flatten(1)[:, self.order].reshape(x.shape)
        else:
            y = dct(x, self.axes) if self.map == "dct" else _turned(x)
        return y, x.new_zeros(())

    def log_det(self) -> Tensor:
        """Return 0."""
        return self.precision.new_zeros(())

    def inverse(self, y: Tensor) -> Tensor:
        """Move the entries back, or transform back."""
        if self.map == "permutation":
            return y.flatten(1)[:, self.order.argsort()].reshape(y.shape)
        return inverse_dct(y, self.axes) if self.map == "dct" else _turned(y)

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return a permuted identity, or the matrices of the transforms."""
        if self.map == "permutation":
            return torch.eye(self.dim, dtype=self.precision.dtype, device=self.precision.device)[self.order]
        matrix = torch.eye(self.channels, dtype=torch.float64)
        for size in self.shape[1:]:
            axis = dct_matrix(size) if self.map == "dct" else torch.eye(size).flip(0)
            matrix = torch.kron(matrix, axis.to(matrix))
        return matrix.to(self.precision)


def _turned(x: Tensor) -> Tensor:
    return x.flip(tuple(range(2, x.ndim)))
