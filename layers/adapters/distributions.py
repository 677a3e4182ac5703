"""Transforms of torch.distributions, pyro and zuko as layers, and layers as transforms of them."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from torch import Size, Tensor, is_grad_enabled
from torch.distributions import Transform, constraints
from torch.distributions.transforms import _InverseTransform

from layers.adapters.base import Library, as_batch, import_library, log_dets, vector_shape
from layers.base import InvertibleLinear


class Distributions(Library):
    """Subclasses of `torch.distributions.Transform`; `t(x)` is the forward direction, `t.inv(y)` the inverse.

    `t.domain.event_dim` says how many axes an event has; 0 acts on each entry, and the log-dets of the entries add up.
    One method has the log-det for both directions, and the reverse direction has no other.
    """

    root = "torch.distributions.transforms:Transform"
    packages: ClassVar = {"torch": "torch", "pyro": "pyro-ppl", "zuko": "zuko"}
    functions = ("pyro.distributions.transforms.", "zuko.transforms.")

    def refusal(self, built: Any, event: tuple[int, ...]) -> str | None:
        """Refuse events of another number of axes; a transform of single entries takes vectors."""
        if not isinstance(built, Transform):
            return f"{type(built).__name__} is not a transform"
        axes = built.domain.event_dim
        return None if max(axes, 1) == len(event) else f"it takes events of {axes} axes"

    def forward(self, built: Any, x: Tensor) -> tuple[Tensor, Any]:
        """Call the transform."""
        y = built(x)
        log_det = built.log_abs_det_jacobian(x, y)
        if built.domain.event_dim == 0:
            log_det = log_det.flatten(1).sum(1)
        return y.view_as(y), log_det  # another object: by the same, a transform that caches would not compute inverses

    def inverse(self, built: Any, y: Tensor) -> tuple[Tensor, Any]:
        """Call the inverse of the transform."""
        x = built.inv(y)
        return x.view_as(x), None


class LayerTransform(Transform):
    """A layer as a `torch.distributions.Transform`: `t(x)` is its forward, `t.inv(y)` its inverse.

    A layer on (D, 1) takes vectors (*batch, D), others events with all their axes. With `cache_size=1` the last result
    is kept, as by other transforms, until the weights or torch's grad mode change.
    """

    bijective = True

    def __init__(self, layer: InvertibleLinear, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.layer = layer
        self._made_with: object = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without a kept result, whose graph cannot be copied or saved."""
        return super().__getstate__() | {"_cached_x_y": (None, None), "_made_with": None}

    @property
    def domain(self) -> constraints.Constraint:  # type: ignore[override]
        """Return real events with the layer's number of axes."""
        return constraints.independent(constraints.real, len(vector_shape(self.layer)))

    @property
    def codomain(self) -> constraints.Constraint:  # type: ignore[override]
        """Return the same as the domain."""
        return self.domain

    @property
    def inv(self) -> LayerInverse:
        """Return the inverse; `t.inv.inv` is t."""
        return LayerInverse(self)

    def with_cache(self, cache_size: int = 1) -> LayerTransform:
        """Return a transform around the same layer with this cache size."""
        return self if self._cache_size == cache_size else LayerTransform(self.layer, cache_size)

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        self._forget()
        return super().__call__(x)

    def _inv_call(self, y: Tensor) -> Tensor:
        self._forget()
        return super()._inv_call(y)

    def _forget(self) -> None:
        """Discard the kept result if it was made with other weights or in another grad mode."""
        if not self._cache_size:
            return
        held = (*self.layer.parameters(), *self.layer.buffers())
        now = is_grad_enabled(), tuple((tensor.data_ptr(), tensor._version) for tensor in held)
        if now != self._made_with:
            self._cached_x_y = None, None
            self._made_with = now

    def _call(self, x: Tensor) -> Tensor:
        return self.layer(as_batch(self.layer, x))[0].reshape(x.shape)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.layer.inverse(as_batch(self.layer, y)).reshape(y.shape)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the layer's log-det for every event of x."""
        return log_dets(self.layer, as_batch(self.layer, x)).view(self._batch(x))

    def call_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return y and the log-det of every event, by one pass; zuko's flows call this."""
        y, log_det = self.layer(as_batch(self.layer, x))
        return y.reshape(x.shape), log_det.expand(self._batch(x))

    def _batch(self, x: Tensor) -> Size:
        return x.shape[: x.ndim - len(vector_shape(self.layer))]


class LayerInverse(_InverseTransform):
    """The inverse of a `LayerTransform`. A copy of torch's inverse transforms has lost what it inverts."""

    def __reduce__(self) -> Any:
        return LayerInverse, (self.inv,)


def to_distributions(layer: InvertibleLinear) -> LayerTransform:
    """Return a transform for torch.distributions and pyro. Its parameters are trained through `layer.parameters()`.

    A `TransformedDistribution` maps noise to data: give it `to_distributions(layer).inv` for the layer's direction.
    """
    return LayerTransform(layer)


def to_zuko(layer: InvertibleLinear) -> Any:
    """Return a `zuko.lazy.LazyTransform`, a module, for `zuko.lazy.Flow`; it ignores the context.

    Its transform maps data to noise, as zuko's do, by the layer's forward.
    """
    return _lazy_transform()(layer)


@functools.cache
def _lazy_transform() -> Any:
    """Return the class of the lazy transforms, whose base class is imported on use."""
    base: Any = import_library("zuko.lazy", "to_zuko").LazyTransform

    class ZukoTransform(base):
        """A layer as a lazy transform of zuko."""

        def __init__(self, layer: InvertibleLinear) -> None:
            super().__init__()
            self.layer = layer

        def __reduce__(self) -> Any:
            return to_zuko, (self.layer,), self.__getstate__()

        def forward(self, c: Any = None) -> LayerTransform:
            """Return the transform, the same for every context."""
            return LayerTransform(self.layer)

    return ZukoTransform
