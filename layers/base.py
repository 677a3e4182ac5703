"""The interface of an invertible linear layer, and the registry of the layers that implement it."""

from __future__ import annotations

import functools
import inspect
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from layers.linalg.precision import empty_like, full_precision


class UnsupportedShape(ValueError):
    """Raised by a layer that cannot serve an event shape; the message names the value, the rule and a hint."""


class UnknownLayer(LookupError):
    """No registered layer has the name that was asked for."""


LAYERS: dict[str, type[InvertibleLinear]] = {}
"""Name -> class of every registered layer, filled by `import layers`."""


class InvertibleLinear(nn.Module):
    """An invertible affine map y = W x (+ b) on events of shape (C, *spatial), with 1 or 2 spatial axes.

    Subclass with ``class Mine(InvertibleLinear, name="mine")`` to register a layer. Its options are keyword arguments
    with type hints and defaults, against which a suite is checked; raise a ValueError for a value that the docstring of
    the layer does not allow. Create parameters in ``__init__``, from torch's global generator: the code that builds a
    model seeds it for each module by (seed, path), so a layer needs no seed.

    A subclass defines `forward`, and `inverse` or `inverter`: this class derives the other one. Define both only if a
    single call of `inverse` can be faster than `inverter` and one call of its result. A layer whose initial weights
    depend on the data defines `initialise`; `forward` never sets them.

    Before a method of the subclass receives a batch, this class checks its shape, and adds an event to an empty one
    that it removes from the result. Under torch.autocast the methods compute in the precision of the weights; weights
    of bfloat16 or float16 are refused (`layers.linalg.precision`).

    A parameter of which only some entries reach the map is registered together with a boolean buffer named
    ``<parameter>_mask``, True where an entry counts (see `free_parameters`).

    Attributes:
        shape: the event shape (C, L) or (C, H, W).
        channels: C.
        positions: n, the number of spatial positions (L or H * W).
        dim: D = C * n.
        replaces_mixer: True for a layer that replaces the 1x1 convolution of its flow step.
        hardens: True for a layer whose map in `eval()` differs from that in training. Each mode has the log-det and
            the inverse of the map that it applies; reported values are measured in `eval()`.

    The docstring of a registered layer has the fields Family, Source, Cost (with forward, inverse and log-det) and
    Shapes, each a heading at the start of a line with a colon, which `list layers` shows.
    """

    registered_name: ClassVar[str | None] = None
    replaces_mixer: ClassVar[bool] = False
    hardens: ClassVar[bool] = False

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        members = dict(vars(cls))
        if "inverter" in members:
            members.setdefault("inverse", _inverse_from(members["inverter"]))
        elif "inverse" in members:
            members["inverter"] = InvertibleLinear.inverter
        for method, wrapped in _WRAPPERS.items():
            if method in members:
                setattr(cls, method, wrapped(members[method]))
        if name is None:
            return
        taken = LAYERS.get(name)
        if taken is not None:
            raise ValueError(
                f"layer name {name!r} is taken by {taken.__module__}.{taken.__qualname__}; "
                f"give {cls.__module__}.{cls.__qualname__} another name"
            )
        cls.registered_name = name
        LAYERS[name] = cls

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        shape = tuple(shape)
        whole = all(isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in shape)
        if len(shape) not in (2, 3) or not whole:
            raise UnsupportedShape(
                f"{self.label}: shape {shape} is not an event shape; "
                "use (channels, length) or (channels, height, width) with positive whole numbers"
            )
        self.shape = shape
        self.channels = shape[0]
        self.positions = math.prod(shape[1:])
        self.dim = self.channels * self.positions

    @property
    def label(self) -> str:
        """Return the name for messages, the registered one or else that of the class."""
        return self.registered_name or type(self).__name__

    @property
    def remark(self) -> str | None:
        """Return a remark for readers of results on how this shape is served, or None."""
        return None

    @abstractmethod
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the layer.

        Args:
            x: events, shape (N, *shape).

        Returns:
            y of shape (N, *shape), and log|det W| of **one whole event** in nats, shape (): the number of
            positions that share a weight is already inside.
        """
        raise NotImplementedError

    def initialise(self, x: Tensor) -> None:
        """Set initial weights from data; the default does nothing.

        A flow calls this once, under no_grad, before training; a layer on which it was not called works as constructed.
        A subclass changes only parameters and buffers, in place, and uses no random numbers.

        Args:
            x: the first minibatch of training as it arrives at this layer, shape (N, *shape).
        """

    def log_det(self) -> Tensor:
        """Return log|det W| of one event, shape (), that `forward` returns with the current weights; differentiable.

        The default applies `forward` to one zero event; a layer that needs no pass for it defines this too.
        """
        return self(empty_like(self).new_zeros(1, *self.shape))[1]

    def inverse(self, y: Tensor) -> Tensor:
        """Solve W x + b = y, (N, *shape) -> (N, *shape); differentiable in y and in the parameters."""
        raise NotImplementedError

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Factorise once; return a callable that inverts with the current weights. Call again after they change.

        Gradients follow torch's grad mode, here and in the callable.
        """
        return self.inverse

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return W as a (D, D) matrix on events flattened in row-major order: W @ x.reshape(D) = (y - b).reshape(D).

        The default obtains W by pushing the identity through `forward`. A layer that can form its matrix
        from the definition should do so: tests compare the two.
        """
        return push_identity(self)

    def factors(self) -> list[tuple[str, Tensor]]:
        """Return (name, matrix) of each factor, the first applied first, of a product of sparse matrices.

        A factor of one part of the entries has the size of the part. Other layers return an empty list.
        """
        return []

    def check_event(self, x: Tensor) -> None:
        """Raise ValueError unless x is a batch of this layer's events."""
        if x.ndim != len(self.shape) + 1 or tuple(x.shape[1:]) != self.shape:
            raise ValueError(
                f"{self.label}: input of shape {tuple(x.shape)} is not a batch of events {self.shape}; "
                f"expected (N, {', '.join(map(str, self.shape))})"
            )

    def extra_repr(self) -> str:
        """Return the event shape and the options that the layer keeps under their names, for repr()."""
        kept = {name: vars(self).get(name) for name in layer_options(type(self))}
        options = [f"{name}={value!r}" for name, value in kept.items() if isinstance(value, (str, int, float))]
        return ", ".join([f"shape={self.shape}", *options])


# Marked here and not by a decorator: static checkers do not see that a subclass with `inverter` gets an `inverse`.
InvertibleLinear.inverse.__isabstractmethod__ = True  # type: ignore[attr-defined]


def _checked(method: Callable[[Any, Tensor], Any]) -> Callable[[Any, Tensor], Any]:
    """Return a method that receives batches of events alone, none of them empty, in the precision of the weights.

    Its results are tensors, not objects that compute them when they are used.
    """

    exact = full_precision(method)

    @functools.wraps(method)
    def checked(self: InvertibleLinear, x: Tensor) -> Any:
        self.check_event(x)
        if x.shape[0]:
            result = exact(self, x)
            check_plain(self, result, type(x))
            return result
        # Neither Fourier transforms nor CUDA kernels take an empty batch.
        result = exact(self, torch.cat([x, x.new_zeros(1, *self.shape)]))
        return (result[0][:0], *result[1:]) if isinstance(result, tuple) else result[:0]

    return checked


def _inverse_from(inverter: Callable[[Any], Callable[[Tensor], Tensor]]) -> Callable[[Any, Tensor], Tensor]:
    """Return the `inverse` of a class that defines `inverter`."""

    def inverse(self: InvertibleLinear, y: Tensor) -> Tensor:
        """Invert the map once; differentiable in y and in the parameters."""
        return inverter(self)(y)

    return inverse


def _checked_inverter(inverter: Callable[[Any], Callable[[Tensor], Tensor]]) -> Callable[[Any], Any]:
    """Return an `inverter` that computes in the precision of the weights, as does its callable, which is checked."""
    prepared = full_precision(inverter)

    @functools.wraps(inverter)
    def checked_inverter(self: InvertibleLinear) -> Callable[[Tensor], Tensor]:
        invert = prepared(self)
        return functools.partial(_checked(lambda _, y: invert(y)), self)

    return checked_inverter


def _checked_log_det(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a `log_det` that computes in the precision of the weights, and returns a plain tensor."""
    exact = full_precision(method)

    @functools.wraps(method)
    def checked_log_det(self: InvertibleLinear) -> Any:
        result = exact(self)
        check_plain(self, result)
        return result

    return checked_log_det


_WRAPPERS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "forward": _checked,
    "inverse": _checked,
    "inverter": _checked_inverter,
    "initialise": _checked,
    "log_det": _checked_log_det,
    "dense": full_precision,
    "factors": full_precision,
}


@torch.no_grad()
def push_identity(layer: InvertibleLinear, dtype: torch.dtype | None = None) -> Tensor:
    """Return W (D, D) from a layer's `forward`, 256 columns per pass: column j is f(e_j) - f(0).

    Args:
        layer: any layer.
        dtype: of the events; None: that of the layer's first floating-point tensor, or torch's default.
    """
    like = empty_like(layer).to(dtype)
    offset = layer(like.new_zeros(1, *layer.shape))[0].reshape(1, layer.dim)
    basis = torch.eye(layer.dim, dtype=like.dtype, device=like.device).reshape(layer.dim, *layer.shape)
    rows = [layer(part)[0].reshape(-1, layer.dim) - offset for part in basis.split(256)]
    return torch.cat(rows).T


def check_plain(layer: InvertibleLinear, result: Any, given: type = Tensor) -> None:
    """Raise TypeError if a result, or a part of a pair, is a tensor of a class that is neither torch's nor `given`.

    Another subclass of torch.Tensor may compute its values when they are first used: after the clock has stopped.
    """
    for part in result if isinstance(result, tuple) else (result,):
        kind = type(part)
        if kind is not Tensor and part is not None and kind is not given and kind.__module__.split(".")[0] != "torch":
            raise TypeError(
                f"{layer.label}: a result is of type {type(part).__name__}, not a plain torch.Tensor: compute it "
                "before returning"
            )


def check_choice(layer: str, option: str, value: Any, choices: Sequence[Any]) -> None:
    """Raise a ValueError unless an option of the layer has one of these values."""
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        raise ValueError(f"{layer}: {option} = {value!r} is unknown; use one of {', '.join(map(repr, choices))}")


def check_whole(layer: str, option: str, value: Any, least: int = 1, odd: bool = False) -> None:
    """Raise a ValueError unless an option of the layer is a whole number from `least` up, or an odd one of these."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (odd and value % 2 == 0):
        kind = "an odd" if odd else "a whole"
        raise ValueError(f"{layer}: {option} = {value!r} is not allowed; use {kind} number from {least} up")


def count_entries(tensors: Iterable[Tensor]) -> int:
    """Return how many real numbers tensors hold; a complex entry counts twice."""
    return sum(tensor.numel() * (2 if tensor.is_complex() else 1) for tensor in tensors)


def free_parameters(module: nn.Module) -> int:
    """Return how many trained numbers can change the map: all but those that a buffer ``<name>_mask`` hides."""
    buffers = dict(module.named_buffers())
    count = 0
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        mask = buffers.get(f"{name}_mask")
        count += count_entries([parameter if mask is None else parameter[mask.expand_as(parameter)]])
    return count


def layer_options(cls: type[InvertibleLinear]) -> dict[str, inspect.Parameter]:
    """Return the options of a layer: the keyword parameters of its constructor, without `self` and `shape`."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())[2:]
    return {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
