"""A matrix from its PLU factors, and the log-determinant of a matrix.

Matrices of few channels take less time than the calls of a library's operators. On a CPU, if the compiled operators
can be loaded (`layers.kernels.load`), `invertbench::plu` and `invertbench::log_abs_det` are one call each, backward as
well.
"""

from __future__ import annotations

import torch
from torch import Tensor

from layers.kernels import load as kernels

MOST_CHANNELS = 64  # of the compiled operators; a library is faster with larger matrices


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
