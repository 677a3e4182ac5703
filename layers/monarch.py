"""The Monarch layer: two block-diagonal matrices with a transposition between them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from layers.base import InvertibleLinear, UnsupportedShape, check_whole
from layers.linalg.plu import PLUMatrices


class Monarch(InvertibleLinear, name="monarch"):
    r"""Monarch matrix over all D = p q entries of an event: two block-diagonal factors and a permutation; no bias.

    With the entries in row-major order as a matrix X of shape (p, q),

        X[i, :] <- R_i X[i, :]   for each row i, then   X[:, j] <- L_j X[:, j]   for each column j:

    a block-diagonal matrix of p blocks q x q, then one of q blocks p x p between two transpositions. Every entry of
    the output depends on every entry of the input. Each block is given by its PLU factors (`layers.linalg.plu`) and
    starts at the identity.

    Determinant: log|det| = sum of log_s over all p + q blocks.
    Inverse: L_j^-1 for each column, then R_i^-1 for each row.
    Parameters: D (2 (p + q) + 2), of which D (p + q) reach the map.
    Singular cases: none in exact arithmetic.

    Family: block-diagonal factors
    Cost:
        forward: D (p + q) multiply-adds, 2 D^1.5 where D is a square
        inverse: the same, after a batched triangular solve of D (p^2 + q^2) once per call
        log-det: D additions for each factor
    Shapes: every (C, L) and (C, H, W); by default p is the largest divisor of D up to sqrt(D), so a D that is prime
    has one dense D x D block, and D of 1 x 1
    Source: Monarch (Dao et al., ICML 2022)

    Args:
        block_size: q, of the factor that is applied first; it divides D. None: D / p for the p above.

    Raises:
        UnsupportedShape: the block size does not divide D.
    """

    def __init__(self, shape: tuple[int, ...], *, block_size: int | None = None) -> None:
        super().__init__(shape)
        if block_size is None:
            block_size = self.dim // max(p for p in range(1, math.isqrt(self.dim) + 1) if self.dim % p == 0)
        check_whole("monarch", "block_size", block_size)
        if self.dim % block_size:
            raise UnsupportedShape(
                f"monarch: D = {self.dim} is not divisible by block_size = {block_size}; use a divisor of {self.dim}, "
                "or leave it out"
            )
        self.block_size = block_size
        self.rows, self.columns = self.dim // block_size, block_size
        self.right = PLUMatrices(torch.eye(self.columns).expand(self.rows, -1, -1))
        self.left = PLUMatrices(torch.eye(self.rows).expand(self.columns, -1, -1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply both factors; see the class for the log-det."""
        y = self._columns(self.left.matrices(), self._rows(self.right.matrices(), self._blocks(x)))
        return self._events(y), self.log_det()

    def log_det(self) -> Tensor:
        """Add up log_s over all blocks."""
        return self.right.log_abs_dets().sum() + self.left.log_abs_dets().sum()

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Invert all blocks once; the callable undoes both factors, the second one first."""
        left, right = self.left.inverse_matrices(), self.right.inverse_matrices()
        return lambda y: self._events(self._rows(right, self._columns(left, self._blocks(y))))

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return the two block-diagonal matrices of the definition, the second one between explicit transpositions."""
        order = torch.arange(self.dim, device=self.left.log_s.device).view(self.rows, -1).T.flatten()
        place = order.argsort()
        left = torch.block_diag(*self.left.matrices())[place][:, place]
        return left @ torch.block_diag(*self.right.matrices())

    def _blocks(self, x: Tensor) -> Tensor:
        """Map (N, *shape) -> (p, q, N)."""
        return x.reshape(len(x), self.rows, self.columns).permute(1, 2, 0)

    def _events(self, blocks: Tensor) -> Tensor:
        """Map (p, q, N) -> (N, *shape)."""
        return blocks.permute(2, 0, 1).reshape(-1, *self.shape)

    @staticmethod
    def _rows(matrices: Tensor, blocks: Tensor) -> Tensor:
        return torch.bmm(matrices, blocks)

    @staticmethod
    def _columns(matrices: Tensor, blocks: Tensor) -> Tensor:
        return torch.bmm(matrices, blocks.transpose(0, 1)).transpose(0, 1)
