"""Plain modules of torch as layers: no base class but nn.Module, and two methods."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor, nn

from layers.adapters.base import LIBRARIES, Library, WrongResult
from layers.base import InvertibleLinear


class Modules(Library):
    """Modules with `forward(x) -> (y, log_det)`, log_det of shape () or (N,) in nats, and `inverse(y) -> x`.

    A class that another library or this project has a convention for is left to that. A constructor's parameter `shape`
    receives the event shape that the module sees. `inverse` may return the log-det of its direction too, as a pair.
    """

    root = "torch.nn.modules.module:Module"
    packages: ClassVar = {}
    filled = ("shape",)

    def owns(self, candidate: Any) -> bool:
        """Return True for a subclass of nn.Module with both methods, unless its conventions are those of another."""
        if lacking(candidate) or issubclass(candidate, InvertibleLinear):
            return False
        return not any(library.owns(candidate) for library in LIBRARIES if library is not self)

    def origin(self, make: Any) -> str:
        """Return that the layer is an adapted module."""
        return "adapted from a torch.nn.Module"

    def build(self, make: Callable[..., Any], event: tuple[int, ...], options: dict[str, Any]) -> Any:
        """Return the module, with shape=event if its constructor takes that."""
        shape = {"shape": event} if "shape" in inspect.signature(make).parameters else {}
        return make(**shape, **options)

    def forward(self, built: Any, x: Tensor) -> tuple[Tensor, Any]:
        """Call the module.

        Raises:
            WrongResult: it returns no pair, or a log-det of another shape.
        """
        result = built(x)
        if not (isinstance(result, (tuple, list)) and len(result) == 2 and isinstance(result[0], Tensor)):
            raise WrongResult(f"forward returns {_type(result)}, not a pair (y, log_det)")
        y, log_det = result
        if isinstance(log_det, Tensor):
            if log_det.ndim and log_det.shape != x.shape[:1]:
                raise WrongResult(
                    f"forward returns a log-det of shape {tuple(log_det.shape)} for {len(x)} events: its shape must be "
                    "(), or (N,) with one entry for each event"
                )
        elif not isinstance(log_det, (int, float)):
            raise WrongResult(f"forward returns {_type(log_det)} as its log-det, not a tensor or a number")
        return y, log_det

    def inverse(self, built: Any, y: Tensor) -> tuple[Tensor, Any]:
        """Call the module's `inverse`.

        Raises:
            WrongResult: it returns no tensor.
        """
        result = built.inverse(y)
        x, log_det = result if isinstance(result, (tuple, list)) and len(result) == 2 else (result, None)
        if not isinstance(x, Tensor):
            raise WrongResult(f"inverse returns {_type(result)}, not x")
        return x, log_det


def lacking(candidate: Any) -> str:
    """Return why an object is no class of modules with `forward` and `inverse`; "" if it is one."""
    if not isinstance(candidate, type):
        return f"it is no class but of type {_type(candidate)}"
    if not issubclass(candidate, nn.Module):
        return "it derives from no nn.Module"
    methods = {"forward(x)": candidate.forward is not nn.Module.forward, "inverse(y)": hasattr(candidate, "inverse")}
    missing = [name for name, there in methods.items() if not there]
    return f"it has no {' and no '.join(missing)}" if missing else ""


def _type(value: Any) -> str:
    """Return the type of a value; of a tuple or a list, also those of its entries."""
    entries = f"[{', '.join(map(_type, value))}]" if isinstance(value, (tuple, list)) else ""
    return f"{type(value).__name__}{entries}"
