"""The condition number of a matrix: how much of the precision its inverse may lose."""

from __future__ import annotations

import math

import torch
from torch import Tensor

SVD_LIMIT = 1024  # all singular values up to here (a quarter of a second on one core); power iteration above
ITERATIONS = 30


def condition_number(matrix: Tensor) -> float:
    """Ratio of the largest to the smallest singular value; inf for a singular or non-finite matrix.

    Exact (SVD) up to D = 1024. Above, power iteration on W^T W and on its inverse: a lower bound, which
    the extreme singular values reach within a few per cent unless they are crowded.
    """
    if not bool(matrix.isfinite().all()):
        return math.inf
    if len(matrix) <= SVD_LIMIT:
        values = torch.linalg.svdvals(matrix)
        return float(values[0] / values[-1]) if values[-1] > 0 else math.inf
    factors, pivots, failed = torch.linalg.lu_factor_ex(matrix)
    if int(failed):
        return math.inf
    start = torch.randn(len(matrix), 1, generator=torch.Generator().manual_seed(0)).to(matrix)
    largest = smallest = start
    for _ in range(ITERATIONS):
        largest = matrix.T @ (matrix @ (largest / largest.norm()))
        halfway = torch.linalg.lu_solve(factors, pivots, smallest / smallest.norm(), adjoint=True)
        smallest = torch.linalg.lu_solve(factors, pivots, halfway)
    # Norms of (W^T W) u and (W^T W)^-1 u for unit u: squares of the largest and of one over the smallest.
    condition = float((largest.norm() * smallest.norm()).sqrt())
    return condition if math.isfinite(condition) else math.inf
