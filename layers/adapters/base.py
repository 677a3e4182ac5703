"""A layer around an object of another library, and the interface to such a library."""

from __future__ import annotations

import functools
import importlib
import inspect
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from layers.adapters.expressions import evaluate
from layers.base import InvertibleLinear, UnsupportedShape

LIBRARIES: list[Library] = []
"""Every library, filled by `import layers.adapters`."""

PROBES = 11
"""Events of the batch that decides how a library takes events: no size that broadcasts by accident."""

REFUSED = (ValueError, TypeError, AssertionError, IndexError)
"""Exceptions by which a constructor refuses a size; others, such as a function that torch has removed, are faults."""


class WrongResult(TypeError):
    """Raised for an object whose result does not have the form that the conventions of its library give it."""


class Library(ABC):
    """The conventions of one library: a subclass in a file of this folder registers itself.

    An object of the library maps a batch of events, (N, *event), and returns a log-det: a number, or a tensor with one
    entry or N.

    Attributes:
        root: base class of the library's transforms, as "module:Class".
        packages: top-level module -> distribution that has its version.
        functions: modules whose functions return such transforms.
        filled: parameters of the constructor that `build` gives.
    """

    root: ClassVar[str]
    packages: ClassVar[dict[str, str]]
    functions: ClassVar[tuple[str, ...]] = ()
    filled: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        LIBRARIES.append(cls())

    def owns(self, found: Any) -> bool:
        """Return True for a subclass of the root, and for a function that returns objects of one."""
        if isinstance(found, type):
            return any(_path(base) == self.root for base in found.__mro__[1:])
        return inspect.isfunction(found) and found.__module__.startswith(self.functions or ("\0",))

    def origin(self, make: Any) -> str:
        """Return the distribution that defines a class, or its nearest base class in a library, with the version."""
        modules = [base.__module__ for base in inspect.getmro(make)] if isinstance(make, type) else [make.__module__]
        tops = [module.partition(".")[0] for module in (*modules, self.root)]
        name = next(self.packages[top] for top in tops if top in self.packages)
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            return name

    def build(self, make: Callable[..., Any], event: tuple[int, ...], options: dict[str, Any]) -> Any:
        """Return an object of the library for events of this shape."""
        return make(**options)

    def refusal(self, built: Any, event: tuple[int, ...]) -> str | None:
        """Return why the object does not take events of this shape, if it says so, else None."""
        return None

    @abstractmethod
    def forward(self, built: Any, x: Tensor) -> tuple[Tensor, Any]:
        """Map data to latent variables; return y and the log-det."""

    @abstractmethod
    def inverse(self, built: Any, y: Tensor) -> tuple[Tensor, Any]:
        """Map back; return x and the log-det of this direction, None if the library does not compute it."""


class Adapted(InvertibleLinear):
    """A transform of another library as a layer; `adapt` makes a subclass for each of its classes.

    The library's object receives an event in its own shape, or as a vector of D entries if it refuses that; the first
    that gives a result of D entries is used. Its result is brought to the event's shape in row-major order.

    Modules keep their own parameters. Another object with tensors among its options is built in each call, from
    parameters that this layer holds: one for each option with a floating-point tensor. Tensors of whole numbers are
    buffers.

    Attributes:
        library, make: the library, and its class or function.
        event: the event shape that the library's object receives.
        result: the shape of its result for one event.
        kept: the library's object; None if it is built in each call.
    """

    library: ClassVar[Library]
    make: ClassVar[Callable[..., Any]]
    event: tuple[int, ...]
    result: tuple[int, ...]

    def __init__(self, shape: tuple[int, ...], /, **options: Any) -> None:
        super().__init__(shape)
        inspect.signature(type(self).__init__).bind(self, shape, **options)
        self.options = options
        try:
            values = {name: evaluate(name, value, self.shape) for name, value in options.items()}
        except ValueError as error:
            raise type(error)(f"{self.label}: {error}") from error
        self._choose_event(values)
        self._last: tuple[weakref.ref[Tensor], weakref.ref[Tensor]] | None = None
        # Without a parameter, the precision of the layer is that of this.
        self.register_buffer("precision", torch.empty(0), persistent=False)
        self.held, self.fixed = nn.Module(), {}
        built = self.library.build(self.make, self.event, values)
        tensors = any(isinstance(value, Tensor) for value in values.values())
        self.kept = None if tensors and not isinstance(built, nn.Module) else built
        for name, value in values.items() if self.kept is None else ():
            if not isinstance(value, Tensor):
                self.fixed[name] = value
            elif value.is_floating_point():
                self.held.register_parameter(name, nn.Parameter(value))
            else:
                self.held.register_buffer(name, value)

    def _choose_event(self, values: dict[str, Any]) -> None:
        """Set `event` and `result` by trying objects that are then discarded, without effect on torch's generator.

        Fall back to a shape for which only the inverse fails; the inverse itself may be broken.

        Raises:
            UnsupportedShape: no event shape serves.
            WrongResult: nor does any, and one gives a result of another form.
        """
        reasons: dict[tuple[int, ...], str | WrongResult] = {}
        served: list[tuple[bool, tuple[int, ...], tuple[int, ...]]] = []
        for event in dict.fromkeys([self.shape, (self.dim,)]):
            with torch.random.fork_rng(devices=[]):
                found = self._probe(values, event)
            if isinstance(found, (str, WrongResult)):
                reasons[event] = found
                continue
            served.append(found)
            if found[0]:
                break
        if not served:
            for reason in reasons.values():
                if isinstance(reason, WrongResult):
                    raise reason
            said = "; ".join(f"as {event}: {' '.join(str(reason).split())[:300]}" for event, reason in reasons.items())
            raise UnsupportedShape(
                f"{self.label}: events {self.shape} are refused ({said}); give its options by the event's sizes, such "
                "as features=D or num_channels=C, or use another event shape"
            )
        _, self.event, self.result = max(served, key=lambda found: found[0])

    @torch.no_grad()
    def _probe(
        self, values: dict[str, Any], event: tuple[int, ...]
    ) -> str | WrongResult | tuple[bool, tuple[int, ...], tuple[int, ...]]:
        """Apply an object to a batch; return why it does not fit, or whether it inverts, `event` and `result`."""
        try:
            built = self.library.build(self.make, event, values)
        except REFUSED as error:
            return str(error) or type(error).__name__
        reason = self.library.refusal(built, event)
        if reason is not None:
            return reason
        x = torch.linspace(-1, 1, PROBES * self.dim).sin().reshape(PROBES, *event)
        # A library may refuse a shape by any exception.
        try:
            y, log_det = self.library.forward(built, x)
            _one(log_det, x)
        except WrongResult as error:
            return error
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        if y.shape[:1] != x.shape[:1] or y.numel() != x.numel():
            return f"{PROBES} events give a result of shape {tuple(y.shape)}"
        try:
            inverts = self.library.inverse(built, y)[0].shape == x.shape
        except Exception:
            inverts = False
        return inverts, event, tuple(y.shape[1:])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the library's object in the direction from data to latent variables."""
        y, log_det = self.library.forward(self._built(), self._as_event(x))
        return _reshaped(y, self.shape), _one(log_det, x)

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Return a callable that applies the inverse of one object, with the current parameters."""
        built = self._built()
        return lambda y: _reshaped(self.library.inverse(built, _reshaped(y, self.result))[0], self.shape)

    def initialise(self, x: Tensor) -> None:
        """Call the method `initialise` of the library's object, if it has one."""
        start = getattr(self.kept, "initialise", None)
        if callable(start):
            start(self._as_event(x))

    def inverse_log_det(self, y: Tensor) -> Tensor | None:
        """Return the log-det that the library gives for the reverse direction, shape (); None if it gives none."""
        log_det = self.library.inverse(self._built(), _reshaped(y, self.result))[1]
        return None if log_det is None else _one(log_det, y)

    @property
    def remark(self) -> str | None:
        """Return the origin of the library's object, and whether it receives events as vectors."""
        seen = "" if self.event == self.shape else ", on the event as a vector"
        return f"{self.library.origin(self.make)}{seen}"

    def extra_repr(self) -> str:
        """Return the event shape and the options as given, for repr()."""
        return ", ".join([f"shape={self.shape}", *(f"{name}={value!r}" for name, value in self.options.items())])

    def __reduce__(self) -> Any:
        return _unfilled, (type(self).make,), self.__getstate__() | {"_last": None}

    def _built(self) -> Any:
        """Return the library's object with the current parameters."""
        if self.kept is not None:
            return self.kept
        held = {name: getattr(self.held, name) for name in self.options if name not in self.fixed}
        return self.library.build(self.make, self.event, self.fixed | held)

    def _as_event(self, x: Tensor) -> Tensor:
        """Return x in the shape that the library takes: for the same tensor the same one again, as long as it is held.

        Some libraries cache results by tensor identity, so return the same reshaped tensor.
        """
        if self.event == self.shape:
            return x
        if self._last is not None and self._last[0]() is x:
            last = self._last[1]()
            differentiable = x.requires_grad and torch.is_grad_enabled()
            # Not a copy, which would not follow a change of x in place, nor one from another grad mode.
            if last is not None and last.data_ptr() == x.data_ptr() and last.requires_grad == differentiable:
                return last
        flat = x.reshape(len(x), *self.event)
        self._last = weakref.ref(x), weakref.ref(flat)
        return flat


@functools.cache
def adapt(make: Any) -> type[Adapted] | None:
    """Return the layer class of a library's class or of a function that builds its objects; None for others.

    The base classes of `make` name its library. Each class of a library gives one layer class, whose options are the
    parameters of the library's constructor.
    """
    library = next((library for library in LIBRARIES if library.owns(make)), None)
    return None if library is None else _adapted_class(library, make)


def _unfilled(make: Any) -> Any:
    """Return a layer of `adapt(make)` without any state, for pickle: the class itself has no place to be found in."""
    cls: Any = adapt(make)
    return cls.__new__(cls)


def _adapted_class(library: Library, make: Any) -> type[Adapted]:
    """Return the layer class of one class or function of a library."""
    parameters = inspect.signature(make).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    options = [p for p in parameters if p.kind in named and p.name not in library.filled]
    # By position alone, under names that no option has: a constructor may have a parameter `shape` of its own.
    leading = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in ("_self", "_event_shape")]
    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=Any) for p in options]

    def __init__(self: Adapted, shape: tuple[int, ...], /, **options: Any) -> None:
        Adapted.__init__(self, shape, **options)

    __init__.__annotations__.clear()  # those of the library's parameters are not strict
    __init__.__signature__ = inspect.Signature([*leading, *keywords])  # type: ignore[attr-defined]
    members = {
        "__init__": __init__,
        "__module__": make.__module__,
        "__doc__": f"{make.__module__}.{make.__qualname__} as a layer (see `layers.adapters.base.Adapted`).",
        "library": library,
        "make": staticmethod(make),
    }
    return type(make.__name__, (Adapted,), members)


def import_library(name: str, asks: str) -> ModuleType:
    """Import a module for the function `asks`; raise an ImportError that says how to install its library."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{asks} needs {name.partition('.')[0]}, which cannot be imported ({error}); "
            "`pip install -e '.[libraries]'` installs it"
        ) from error


def _path(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _reshaped(x: Tensor, event: tuple[int, ...]) -> Tensor:
    """Return a batch with another event shape; the same tensor if it has that already."""
    return x if tuple(x.shape[1:]) == event else x.reshape(len(x), *event)


def _one(log_det: Any, x: Tensor) -> Tensor:
    """Return the log-det of one event, shape (), from that of a library for the batch x.

    Of several, all of which are equal for a linear map, this is the one farthest from the first: a fault of any event
    is then a fault of the result, and none is rounded.
    """
    if not isinstance(log_det, Tensor):
        return x.new_tensor(log_det)
    if not log_det.ndim:
        return log_det
    values = log_det.reshape(-1)
    if len(values) not in (1, len(x)):
        raise ValueError(f"a log-det of shape {tuple(log_det.shape)} for {len(x)} events; expected (), (1,) or (N,)")
    return values[(values - values[0]).abs().argmax()]


def vector_shape(layer: InvertibleLinear) -> tuple[int, ...]:
    """Return the event shape in other libraries: (D,) for a layer on (D, 1), else the layer's own."""
    return (layer.dim,) if len(layer.shape) == 2 and layer.positions == 1 else layer.shape


def as_batch(layer: InvertibleLinear, x: Tensor) -> Tensor:
    """Return events of a library, (*batch, *vector_shape), as a batch (N, *shape) of the layer.

    Raises:
        ValueError: x has another event shape.
    """
    event = vector_shape(layer)
    if tuple(x.shape[x.ndim - len(event) :]) != event:
        raise ValueError(
            f"{layer.label}: input of shape {tuple(x.shape)} does not end in the event shape {event}; build the layer "
            "for the events of the flow"
        )
    return x.reshape(-1, *layer.shape)


def log_dets(layer: InvertibleLinear, batch: Tensor) -> Tensor:
    """Return the layer's log-det for each event of a batch, shape (N,), in the precision of the finer of the two."""
    value = layer.log_det()
    return value.to(batch.device, torch.promote_types(value.dtype, batch.dtype)).expand(len(batch))


def to_latent(layer: InvertibleLinear, x: Tensor) -> tuple[Tensor, Tensor]:
    """Map events of a library, (N, *vector_shape), by the layer; return y and the log-det of each event, (N,)."""
    y, log_det = layer(as_batch(layer, x))
    return y.reshape(x.shape), log_det.expand(len(y))


def to_data(layer: InvertibleLinear, y: Tensor) -> tuple[Tensor, Tensor]:
    """Map them back by the layer's inverse; return x and the log-det of this direction for each event, (N,)."""
    x = layer.inverse(as_batch(layer, y))
    return x.reshape(y.shape), -log_dets(layer, x)
