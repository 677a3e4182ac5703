"""Lower precision for the matrix products of the coupling networks alone.

A coupling is a map with an exact log-det, whatever its network computes; so its network may be computed in TF32 or
bfloat16. Sums of log-dets, linear layers and their log-dets, the optimiser, and every inverse always use float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from flows.couplings import AffineCoupling

Precision = Literal["float32", "tf32", "bfloat16"]


@contextmanager
def lowered(flow: nn.Module, precision: Precision) -> Iterator[None]:
    """Let the coupling networks of `flow` compute in this precision inside the context, and their gradients too.

    float32: nothing changes. bfloat16: by autocast; the outputs of a network are float32 again. tf32: for the matrix
    products and convolutions of a CUDA device, while a network or its gradient is computed.
    """
    if precision == "float32":
        yield
        return
    enter, leave = (_enter_tf32, _leave_tf32) if precision == "tf32" else _autocast()
    with ExitStack() as hooks:
        for module in flow.modules():
            if isinstance(module, AffineCoupling):
                hooks.callback(module.net.register_forward_pre_hook(enter).remove)
                hooks.callback(module.net.register_forward_hook(leave).remove)
        try:
            yield
        finally:
            _set_tf32(False)


def _autocast() -> tuple[Any, Any]:
    """Return the hooks before and after a network, for bfloat16."""
    casts: list[torch.autocast] = []

    def enter(net: nn.Module, inputs: tuple[Tensor]) -> None:
        # No cache of the weights' casts: a captured graph must repeat them in every step.
        casts.append(torch.autocast(inputs[0].device.type, torch.bfloat16, cache_enabled=False))
        casts[-1].__enter__()

    def leave(net: nn.Module, inputs: tuple[Tensor], outputs: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        casts.pop().__exit__(None, None, None)
        return tuple(output.float() for output in outputs)

    return enter, leave


def _set_tf32(on: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = on
    torch.backends.cudnn.allow_tf32 = on


class _Border(torch.autograd.Function):
    """The identity at the border between TF32 and full precision; gradients cross it in the other direction."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, inside: bool) -> Tensor:
        ctx.inside = inside
        _set_tf32(inside)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        _set_tf32(not ctx.inside)
        return gradient, None


def _enter_tf32(net: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor] | None:
    # Without a gradient to pass back through here, nothing would end TF32 in the backward pass: keep float32.
    return (cast(Tensor, _Border.apply(inputs[0], True)),) if inputs[0].requires_grad else None


def _leave_tf32(net: nn.Module, inputs: tuple[Tensor], outputs: tuple[Tensor, Tensor]) -> tuple[Tensor, ...] | None:
    if not inputs[0].requires_grad:
        return None
    return tuple(cast(Tensor, _Border.apply(output, False)) for output in outputs)
