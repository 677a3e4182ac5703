"""Many small invertible matrices at once, by their PLU factors: determinants and inverses without elimination."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from layers.linalg.batched import by_matrix


class PLUMatrices(nn.Module):
    """A batch of n x n matrices, each parameterised as W = P (L o strictly-lower + I) (U o strictly-upper + diag(s)).

    s = sign * exp(log_s). The permutations P and the signs are buffers, fixed at the matrices that are set; L and U
    are stored whole, so 2n^2 + n parameters per matrix, of which n^2 reach W. An identity is represented exactly.

    Determinant: log|det W| = sum(log_s).
    Inverse: one batched pair of triangular solves.
    Singular: never, in exact arithmetic.

    Args:
        matrices: the initial ones, (count, n, n), every one invertible; count may be 0.

    Source: Glow (Kingma & Dhariwal, 2018).
    """

    lower_mask: Tensor
    upper_mask: Tensor
    permutation: Tensor
    sign: Tensor

    def __init__(self, matrices: Tensor) -> None:
        super().__init__()
        count, size, _ = matrices.shape
        self.lower = nn.Parameter(torch.empty(count, size, size))
        self.upper = nn.Parameter(torch.empty(count, size, size))
        self.log_s = nn.Parameter(torch.empty(count, size))
        strictly_lower = torch.ones(size, size, dtype=torch.bool).tril(-1)
        self.register_buffer("lower_mask", strictly_lower, persistent=False)
        self.register_buffer("upper_mask", strictly_lower.T.contiguous(), persistent=False)
        # Row i of W is row permutation[i] of LU.
        self.register_buffer("permutation", torch.empty(count, size, dtype=torch.long))
        self.register_buffer("sign", torch.empty(count, size))
        self.set_matrices(matrices)

    @torch.no_grad()
    def set_matrices(self, matrices: Tensor) -> None:
        """Set the weights to represent these matrices: (count, n, n), real and every one invertible."""
        permutation, lower, upper = by_matrix(_factorised, matrices.double())
        pivots = upper.diagonal(dim1=-2, dim2=-1)
        self.lower.copy_(lower.tril(-1))
        self.upper.copy_(upper.triu(1))
        self.log_s.copy_(pivots.abs().log())
        self.sign.copy_(pivots.sign())
        self.permutation.copy_(permutation.argmax(-1))

    def _factors(self) -> tuple[Tensor, Tensor]:
        """Return L without its unit diagonal, and U with its diagonal."""
        diagonal = torch.diag_embed(self.sign * self.log_s.exp())
        return self.lower * self.lower_mask, torch.addcmul(diagonal, self.upper, self.upper_mask)

    def matrices(self) -> Tensor:
        """Return W, (count, n, n)."""
        lower, upper = self._factors()
        rows = self.permutation[:, :, None].expand_as(upper)
        # (L + I) U = U + L U saves building the unit diagonal.
        return torch.baddbmm(upper, lower, upper).gather(1, rows)

    def inverse_matrices(self) -> Tensor:
        """Return W^-1, (count, n, n)."""
        lower, upper = self._factors()
        count, size = self.log_s.shape
        unpermuted = torch.arange(1, size + 1, dtype=torch.int32, device=upper.device).expand(count, size)
        identity = torch.eye(size, dtype=upper.dtype, device=upper.device).expand_as(upper)
        inverse = torch.linalg.lu_solve(lower + upper, unpermuted.contiguous(), identity)
        return inverse.gather(2, self.permutation[:, None, :].expand_as(inverse))

    def log_abs_dets(self) -> Tensor:
        """Return log|det W| of each matrix, (count,)."""
        return self.log_s.sum(-1)


def _factorised(matrices: Tensor) -> tuple[Tensor, ...]:
    return tuple(torch.linalg.lu(matrices))


def random_rotations(count: int, size: int) -> Tensor:
    """Return rotations (orthogonal, determinant 1), uniform, from torch's global generator: (count, n, n), float64."""
    q, r = torch.linalg.qr(torch.randn(count, size, size, dtype=torch.float64))
    # Without the signs the draw would follow LAPACK's convention.
    q = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    q[:, :, 0] *= by_matrix(torch.linalg.det, q).sign().unsqueeze(-1)
    return q
