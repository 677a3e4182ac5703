"""A butterfly without log-det in C++: the multiplication of the original butterfly repository, written anew.

It works on stacks of n = 2^levels entries, in an order of its own: D = s n entries with levels 1..log2(n) of ours are s
stacks, as entries pair only with those of the same index modulo s. It gets events and weights in that order for free.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from compiled import compiled  # the script's own folder
from torch import Tensor

from layers.butterfly import Butterfly

SOURCE = Path(__file__).with_suffix(".cpp")


def stacked_events(x: Tensor, levels: int) -> Tensor:
    """Return events as (N, stacks, n)."""
    return x.flatten(1).unflatten(1, (2**levels, -1)).transpose(1, 2).contiguous()


def stacked_weight(layer: Butterfly) -> Tensor:
    """Return the matrices of an unshared layer with levels 1, 2, ... as (stacks, levels, n / 2, 2 out, 2 in)."""
    levels = len(layer.plan.factors)
    return layer.weight.detach().reshape(2, 2, levels, 2 ** (levels - 1), -1).permute(4, 2, 3, 0, 1).contiguous()


def build() -> Callable[[Tensor, Tensor], Tensor]:
    """Compile the C++ as the repository does, and return the differentiable product of stacked weight and events."""
    library = compiled(SOURCE, "-O3")
    for function, pointers in ((library.multiply, 3), (library.multiply_backward, 6)):
        function.restype, function.argtypes = None, [ctypes.c_void_p] * pointers + [ctypes.c_int64] * 3

    class Multiply(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, weight: Tensor, x: Tensor) -> Tensor:
            ctx.save_for_backward(weight, x)
            y = torch.empty_like(x)
            library.multiply(x.data_ptr(), weight.data_ptr(), y.data_ptr(), *_sizes(weight, x))
            return y

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
            weight, x = ctx.saved_tensors
            sizes = _sizes(weight, x)
            inputs, of_weight, of_x = (
                x.new_empty(sizes[2] - 1, x.numel()),
                torch.empty_like(weight),
                torch.empty_like(x),
            )
            operands = (x, weight, gradient.contiguous(), inputs, of_x, of_weight)
            library.multiply_backward(*(tensor.data_ptr() for tensor in operands), *sizes)
            return of_weight, of_x

    return Multiply.apply


def _sizes(weight: Tensor, x: Tensor) -> tuple[int, int, int]:
    """Return the numbers of events, stacks and levels of contiguous float32 tensors."""
    if not all(tensor.is_contiguous() and tensor.dtype == torch.float32 for tensor in (weight, x)):
        raise ValueError("the yardstick reads contiguous float32 tensors; use .float().contiguous()")
    return len(x), x.shape[1], weight.shape[1]
