"""The inverse of Emerging as the original's Cython computes it: a scalar loop on one thread, in float64."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import torch
from compiled import compiled  # the script's own folder
from torch import Tensor

from layers.emerging import Emerging

SOURCE = Path(__file__).with_suffix(".cpp")


def build() -> Callable[[Emerging, Tensor], Tensor]:
    """Compile the loop, and return the inverse of a float64 layer."""
    function = compiled(SOURCE, "-O2", "-fno-tree-vectorize").emerging_yardstick
    function.restype, function.argtypes = None, [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 6

    def invert(layer: Emerging, y: Tensor) -> Tensor:
        if y.dtype != torch.float64 or layer.bias is None:
            raise ValueError("the yardstick works in float64 and wants a bias")
        x = y.clone(memory_format=torch.contiguous_format)
        height, width = (1, *layer.shape[1:])[-2:]
        rows = layer.kernel_size if len(layer.shape) == 3 else 1
        operands = (x, layer.weight1, layer.weight2, layer.bias)
        sizes = (len(y), layer.channels, height, width, rows, layer.kernel_size)
        function(*(tensor.data_ptr() for tensor in operands), *sizes)
        return x

    return invert
