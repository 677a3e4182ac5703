"""Factorise batches of matrices one by one if torch's batched factorisation is wrong.

On a CPU with more than one thread, torch hands the matrices of a batch to LAPACK from several threads, and MKL's LU of
about 150 rows or more then gives wrong pivots: a silently wrong determinant, or an error on solving
(https://github.com/pytorch/pytorch/issues/141358 and 142815; seen with torch 2.15 in float32, float64 and complex).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

LARGEST = 128  # rows of matrices that are safe in a batch

Result = TypeVar("Result", Tensor, tuple[Tensor, ...])


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
