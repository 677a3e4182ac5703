"""The precision in which a module computes: that of its weights, float32 or float64, under torch.autocast as well.

Autocast rounds the results of products to 8 or 11 bits. A log-determinant is a sum of up to millions of terms that has
to be that of the map, so layers run without autocast, and refuse weights that are as coarse.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def check_precision(module: nn.Module, dtype: torch.dtype | None) -> None:
    """Raise a ValueError if a layer or flow would compute in a precision that is too coarse for a log-determinant."""
    if dtype is torch.bfloat16 or dtype is torch.float16:
        label = getattr(module, "label", type(module).__name__)
        raise ValueError(
            f"{label}: {str(dtype).removeprefix('torch.')} is too coarse for a log-determinant; keep weights and "
            "events in float32, by .float(), and use torch.autocast for other modules"
        )


def full_precision(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of a module that computes in the precision of the weights.

    Under autocast, floating-point tensors among its arguments are converted to that precision, unless theirs is finer.
    """

    @functools.wraps(method)
    def in_full_precision(self: Any, *args: Any, **options: Any) -> Any:
        check_precision(self, precision(self) or next((x.dtype for x in args if isinstance(x, Tensor)), None))
        if torch._C._is_any_autocast_enabled():
            return _without_autocast(method, self, *args, **options)
        return method(self, *args, **options)

    return in_full_precision


def precision(module: nn.Module) -> torch.dtype | None:
    """Return the dtype of a module's first floating-point tensor, in a fraction of the time of its iterators."""
    for held in (module._parameters, module._buffers):
        for tensor in held.values():
            if tensor is not None and tensor.is_floating_point():
                return tensor.dtype
    for inner in module._modules.values():
        dtype = None if inner is None else precision(inner)
        if dtype is not None:
            return dtype
    return None


def empty_like(module: nn.Module) -> Tensor:
    """Return an empty tensor on a module's device, of the dtype of its first floating-point tensor or the default."""
    held = (*module.parameters(), *module.buffers())
    like = next((tensor for tensor in held if tensor.is_floating_point()), torch.empty(0))
    return torch.empty(0, dtype=like.dtype, device=held[0].device if held else None)


def _without_autocast(method: Callable[..., Any], module: nn.Module, *args: Any, **options: Any) -> Any:
    like = empty_like(module)
    converted = [
        x.to(torch.promote_types(x.dtype, like.dtype)) if isinstance(x, Tensor) and x.is_floating_point() else x
        for x in args
    ]
    device = next((x.device for x in args if isinstance(x, Tensor)), like.device)
    with torch.autocast(device.type, enabled=False):
        return method(module, *converted, **options)
