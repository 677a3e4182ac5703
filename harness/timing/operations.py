"""The timed operations of a layer, shared by runtime trials and by `pytest --benchmark-only`.

Definitions, after the runtime section of ButterflyFlow (Meng et al., ICML 2022):

- forward: apply the layer **and** compute its log-det in grad mode; no backward pass.
- forward_backward: the same, then the gradient of sum(y) + log-det with respect to the input and every parameter.
- log_det: `layer.log_det()` in grad mode, without a pass over events; no backward pass. A layer that does not define it
  applies forward to one zero event.
- inverse: `layer.inverse(y)` under no_grad, including its factorisation ("cold").
- inverse_warm: the same with the result of `layer.inverter()`, which factorises before the clock starts.

The input x is standard normal, and y is the layer's output for it. The weights are perturbed away from
initialisation, where an identity could be cheaper than the layer in use (denormal numbers, zero off-diagonals).
A layer that hardens is timed as it is used: forward and log-det in training, the inverse, which draws samples, in
`eval()`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, get_args

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from harness.core.settings import Operation
from layers import InvertibleLinear

OPERATIONS: tuple[Operation, ...] = get_args(Operation)


@torch.no_grad()
def perturb(layer: InvertibleLinear, scale: float, generator: torch.Generator) -> None:
    """Add N(0, scale^2 / fan) noise to every parameter that is not frozen, fan being its last dimension."""
    for parameter in layer.parameters():
        if not parameter.requires_grad:
            continue
        fan = max(parameter.shape[-1], 1) if parameter.ndim else 1
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.add_((scale * fan**-0.5 * noise).to(parameter))


def prepare(
    layer: InvertibleLinear,
    batch: int,
    operation: Operation,
    *,
    dtype: torch.dtype,
    device: torch.device,
    seed: int = 0,
) -> Callable[[], object]:
    """Return a call without arguments that performs the operation once on a fixed batch of events.

    The layer itself is moved to `device` and `dtype`, and put into training mode or `eval()`.
    """
    layer.to(device=device, dtype=dtype).train(not operation.startswith("inverse"))
    x = events(layer.shape, batch, dtype=dtype, device=device, seed=seed)
    if operation == "forward":
        x.requires_grad_()
        return lambda: layer(x)
    if operation == "log_det":
        return layer.log_det
    if operation == "forward_backward":
        x.requires_grad_()
        leaves = [x, *layer.parameters()]
        ones = torch.ones_like(x)

        def forward_backward() -> tuple[Tensor, ...]:
            y, log_det = layer(x)
            outputs, seeds = ([y, log_det], [ones, None]) if log_det.requires_grad else ([y], [ones])
            return torch.autograd.grad(outputs, leaves, seeds, allow_unused=True)

        return forward_backward

    with torch.no_grad():
        y = layer(x)[0]
        undo = layer.inverter() if operation == "inverse_warm" else layer.inverse

    def inverse() -> Tensor:
        with torch.no_grad():
            return undo(y)

    return inverse


def events(shape: tuple[int, ...], batch: int, *, dtype: torch.dtype, device: torch.device, seed: int = 0) -> Tensor:
    """Return the events that `prepare` gives a layer: standard normal, (batch, *shape)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, *shape, generator=generator, dtype=torch.float64).to(device=device, dtype=dtype)


def inverse_error(back: Tensor, x: Tensor) -> float:
    """Return max |x - back| / max(1, |x|), as in the audit; inf if an entry of `back` is not a number."""
    error = ((back - x) / x.abs().clamp(min=1.0)).abs()
    return float(error.nan_to_num(nan=math.inf, posinf=math.inf).max())


def backend_of(call: Callable[[], object], device: torch.device) -> str:
    """Run a call once and return its backend: "cpp" or "cuda" if it calls an operator of csrc/, else "torch"."""
    with _OperatorWatch() as watch:
        call()
    if not watch.saw_kernel:
        return "torch"
    return "cpp" if device.type == "cpu" else device.type


class _OperatorWatch(TorchDispatchMode):
    """Run every operator unchanged, and note whether one was from csrc/."""

    saw_kernel = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.saw_kernel |= func.namespace == "invertbench"
        return func(*args, **(kwargs or {}))
