"""Matrices by their PLU factors, one or many, and determinants that need no library call or can trust it.

Matrices of few channels take less time than the calls of a library's operators. On a CPU, if the compiled operators
can be loaded (`layers.kernels.load`), `invertbench::plu` and `invertbench::log_abs_det` are one call each, backward as
well.

On a CPU with more than one thread, torch hands the matrices of a batch to LAPACK from several threads, and MKL's LU of
about 150 rows or more then gives wrong pivots: a silently wrong determinant, or an error on solving
(https://github.com/pytorch/pytorch/issues/141358 and 142815; seen with torch 2.15 in float32, float64 and complex).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from layers.kernels import load as kernels

LARGEST = 128  # rows of matrices whose LU is safe in a batch
MOST_CHANNELS = 64  # of the compiled operators; a library is faster with larger matrices

Result = TypeVar("Result", Tensor, tuple[Tensor, ...])


def plu_matrix(
    lower: Tensor, upper: Tensor, log_s: Tensor, sign: Tensor, permutation: Tensor, positions: int
) -> tuple[Tensor, Tensor]:
    """Return W = P (L o strictly-lower + I) (U o strictly-upper + diag(sign * exp(log_s))), and n log|det W|, ().

    Args:
        lower, upper: L and U, (C, C).
        log_s, sign: of the diagonal, (C,).
        permutation: row i of W is row permutation[i] of the product, (C,).
        positions: n, the number of places that W maps.
    """
    if _kernel_serves(lower, upper, log_s, sign):
        weight, log_det = torch.ops.invertbench.plu(lower, upper, log_s, sign, permutation, positions)
        return weight, log_det
    u = upper.triu(1) + torch.diag(sign * log_s.exp())
    # (L + I) U = U + L U saves building the unit diagonal.
    return torch.addmm(u, lower.tril(-1), u).index_select(0, permutation), positions * log_s.sum()


def log_abs_det(matrix: Tensor, positions: int) -> Tensor:
    """Return n log|det| of a real (C, C) matrix that maps n positions, (); -inf if it is singular."""
    if _kernel_serves(matrix):
        value: Tensor = torch.ops.invertbench.log_abs_det(matrix, positions)
        return value
    return positions * torch.linalg.slogdet(matrix).logabsdet


def _kernel_serves(*tensors: Tensor) -> bool:
    """Return whether the compiled operators support these and are faster: few channels on a CPU, in full precision."""
    return len(tensors[0]) <= MOST_CHANNELS and kernels.serve_on_processor(*tensors)


def by_matrix(function: Callable[..., Result], *batches: Tensor) -> Result:
    """Return `function` of whole batches, or of each matrix alone where its LU of a batch cannot be trusted.

    Args:
        function: of matrices (n, n), and of what goes with each; it takes batches of them as well.
        batches: of as many matrices, (N, n, n), and of what goes with them, (N, ...).
    """
    matrices = batches[0]
    safe = matrices.device.type != "cpu" or matrices.shape[-1] <= LARGEST or torch.get_num_threads() == 1
    if safe or len(matrices) == 0:
        return function(*batches)
    results = [function(*one) for one in zip(*batches, strict=True)]
    if isinstance(results[0], Tensor):
        return torch.stack(results)
    return tuple(map(torch.stack, zip(*results, strict=True)))


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
