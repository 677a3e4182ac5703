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
No call may return a result that was kept from an earlier one: before each timed call, input and weights get other
values in place (`Rewriting`), by which neither identity, version counter nor content tells a former call. inverse_warm
keeps its factorisation, and with it the weights.

A layer that hardens is timed as it is used: forward and log-det in training, the inverse, which draws samples, in
`eval()`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from flows import seeded
from harness.timing.settings import Operation
from layers import InvertibleLinear

EVENTS_WIDTH, WEIGHTS_WIDTH = 0.5, 0.05  # relative; weights stay near those that were found to be well conditioned
GOLDEN = (math.sqrt(5) - 1) / 2
INVERSE_LIMIT = 1e-3  # relative error of an inverse
REMEMBERED = 1e-3  # part of the largest entry; results of former values differ by more, those of equal ones by rounding


@torch.no_grad()
def perturb(layer: InvertibleLinear, scale: float, generator: torch.Generator) -> None:
    """Add N(0, scale^2 / fan) noise to every parameter that is not frozen, fan being its last dimension."""
    for parameter in layer.parameters():
        if parameter.requires_grad:
            fan = max(parameter.shape[-1], 1) if parameter.ndim else 1
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_((scale * fan**-0.5 * noise).to(parameter))


class Rewriting:
    """Give tensors other values in place at each call, never the same twice, all near those that they had at first.

    Each entry is multiplied by a factor within 1 +- `width` that depends on its last index, so that no two contents are
    multiples of each other. After every `STATES` calls, all are multiplied by another one within 1 +- `width` / 10,
    which makes contents unique. Zeros stay zeros. This is one operator for each tensor, which reads and writes only
    that, so that caches hold what they held before, and through `.data`, so that no version counter tells of it.
    """

    STATES = 61  # sets of factors by index, one after the other

    def __init__(self, widths: Sequence[tuple[Tensor, float]]) -> None:
        generator = torch.Generator().manual_seed(0)
        self._calls = 0
        self._steps: list[tuple[Tensor, float, tuple[Tensor, ...]]] = []
        for tensor, width in widths:
            if tensor.is_floating_point() or tensor.is_complex():
                last = tensor.shape[-1:]  # empty for a number
                factors = 1 + width * (2 * torch.rand(self.STATES, *last, generator=generator, dtype=torch.float64) - 1)
                self._steps.append((tensor, width, (factors / factors.roll(1, 0)).to(tensor).unbind()))

    def __call__(self) -> None:
        """Move all tensors to their next values."""
        self._calls += 1
        turns, state = divmod(self._calls, self.STATES)
        common = [2 * (GOLDEN * turn % 1) - 1 for turn in (turns, turns - 1)]  # of an irrational number: no period
        for tensor, width, steps in self._steps:
            new, old = (1 + width / 10 * part for part in common)
            tensor.data.mul_(steps[state] if state else steps[state] * (new / old))


@dataclass(frozen=True)
class OperationCase:
    """An operation of a layer to be timed."""

    call: Callable[[], object]  # returns its results
    rewrite: Callable[[], object]  # gives input and weights other values before each timed call, while the clock stands
    layer: InvertibleLinear
    events: Tensor  # the input, (N, *shape), or (0, *shape) for an operation without one
    operation: Operation

    def __call__(self) -> object:
        """Perform the operation once."""
        return self.call()


def prepare(
    layer: InvertibleLinear,
    batch: int,
    operation: Operation,
    *,
    dtype: torch.dtype,
    device: torch.device,
    seed: int = 0,
) -> OperationCase:
    """Return the operation on a batch of events, ready to be called.

    The layer itself is moved to `device` and `dtype`, and put into training mode or `eval()`.
    """
    layer.to(device=device, dtype=dtype).train(not operation.startswith("inverse"))
    x = events(layer.shape, batch, dtype=dtype, device=device, seed=seed)
    warm = operation == "inverse_warm"

    def forward_backward() -> tuple[Tensor, ...]:
        y, log_det = layer(x)
        outputs, seeds = ([y, log_det], [ones, None]) if log_det.requires_grad else ([y], [ones])
        return torch.autograd.grad(outputs, leaves, seeds, allow_unused=True)

    def inverse() -> Tensor:
        with torch.no_grad():
            return undo(x)

    call: Callable[[], object] = layer.log_det
    if operation == "log_det":
        x = x[:0]
    elif operation in ("forward", "forward_backward"):
        leaves, ones = [x.requires_grad_(), *layer.parameters()], torch.ones_like(x)
        call = forward_backward if operation == "forward_backward" else lambda: layer(x)
    else:
        with torch.no_grad():
            x = layer(x)[0].clone()  # rewriting must not reach what the layer keeps
            undo = layer.inverter() if warm else layer.inverse
        call = inverse
    weights = [] if warm else [parameter for parameter in layer.parameters() if parameter.requires_grad]
    widths = [(x, EVENTS_WIDTH), *((weight, WEIGHTS_WIDTH) for weight in weights)]
    return OperationCase(call, Rewriting(widths), layer, x, operation)


def remembered(case: OperationCase, fresh: InvertibleLinear) -> str | None:
    """Return how the result after new weights differs from a fresh layer's (a stale cache); None if it does not.

    The `case` was called before; the `fresh` layer was not, and gets the weights of the case's.
    """
    case.rewrite()
    like = case.events
    fresh.to(like).load_state_dict(case.layer.state_dict())
    other = prepare(fresh, len(like), case.operation, dtype=like.dtype, device=like.device)
    other.events.data.copy_(like)
    results = []
    for each in (case, other):
        with seeded(0, case.operation):  # the layer may draw numbers
            results.append([leaf.detach() for leaf in tensors_in(each())])
    for result, expected in zip(*results, strict=True):
        finite = expected[expected.isfinite()].abs()
        scale = float(finite.max()) if finite.numel() else 0.0
        if not torch.allclose(result, expected, rtol=0, atol=REMEMBERED * scale, equal_nan=True):
            return (
                f"{case.operation}, called with new values in the same tensors, is off by "
                f"{float((result - expected).abs().max()) / scale:.2g} (relative) from that of a new layer: a result "
                "or a factorisation of former values is kept"
            )
    return None


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
    namespaces: set[str] = set()
    with OperatorWatch(lambda operator, *_: namespaces.add(operator.namespace)):
        call()
    if "invertbench" not in namespaces:
        return "torch"
    return "cpp" if device.type == "cpu" else device.type


class OperatorWatch(TorchDispatchMode):
    """Run every operator unchanged; then call `see` with it, the tensors that it was given, and its tensors."""

    def __init__(self, see: Callable[[Any, list[Tensor], list[Tensor]], object]) -> None:
        super().__init__()
        self._see = see

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._see(func, tensors_in((args, kwargs)), tensors_in(result))
        return result


def tensors_in(value: object) -> list[Tensor]:
    """Return the tensors in nested containers."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
