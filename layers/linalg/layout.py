"""The transposition of a matrix in memory, forward and backward: events by entries to entries by events.

Layers that want the batch last transpose it twice. Autograd would hand the gradient on as a transposed view, and
code that needs it contiguous then copies it entry by entry, in a poor order; torch copies a whole matrix by blocks,
3 to 4 times faster.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

LEAST_SIDE = 16  # of a matrix whose gradient is worth the call of a Function, some 0.1 ms


def transposed(matrix: Tensor) -> Tensor:
    """Return the transpose, contiguous; so is its gradient, unless the matrix is narrow."""
    recorded = torch.is_grad_enabled() and matrix.requires_grad and min(matrix.shape) >= LEAST_SIDE
    if not recorded or torch.compiler.is_compiling():  # which traces no Function with a `jvp`
        return matrix.T.contiguous()
    result: Tensor = _Transposed.apply(matrix)
    return result


class _Transposed(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor) -> Tensor:
        # A clone even where the transpose is contiguous already: the result of a Function must be a tensor of its own.
        return matrix.T.clone(memory_format=torch.contiguous_format)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing to keep."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return transposed(gradient)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return transposed(tangent)
