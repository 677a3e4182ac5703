"""Gradients of compiled operators that are differentiable themselves, by plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def differentiable_gradients(
    plain: Callable[..., Tensor | tuple[Tensor, ...]],
    operands: Sequence[Tensor],
    needed: Sequence[bool],
    gradient: Tensor | tuple[Tensor, ...],
) -> tuple[Tensor | None, ...]:
    """Return the gradients that `plain(*operands)` sends back, in a graph of their own; None where none is needed.

    Args:
        plain: computes in PyTorch what the compiled operator does.
        operands: its arguments, saved by the operator's forward.
        needed: for each operand, whether its gradient is.
        gradient: of the result, or of each of several.
    """
    # Views, because saved tensors may depend on one another in the caller's graph.
    inputs = [operand.view_as(operand) for operand in operands]
    wanted = [one for one, use in zip(inputs, needed, strict=True) if use]
    found = iter(torch.autograd.grad(plain(*inputs), wanted, gradient, create_graph=True))
    return tuple(next(found) if use else None for use in needed)
