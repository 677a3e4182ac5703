"""nflows: `nflows.transforms` as layers, and layers as transforms of its flows."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from torch import Tensor

from layers.adapters.base import Library, import_library, to_data, to_latent
from layers.base import InvertibleLinear


class NFlows(Library):
    """Transforms of nflows: (outputs, logabsdet) in both directions, logabsdet of shape (N,)."""

    root = "nflows.transforms.base:Transform"
    packages: ClassVar = {"nflows": "nflows"}

    def forward(self, built: Any, x: Tensor) -> tuple[Tensor, Any]:
        """Call `forward`, from data to noise."""
        return built.forward(x)

    def inverse(self, built: Any, y: Tensor) -> tuple[Tensor, Any]:
        """Call `inverse`."""
        return built.inverse(y)


def to_nflows(layer: InvertibleLinear) -> Any:
    """Return an `nflows.transforms.Transform` that applies the layer and trains its parameters.

    A layer on (D, 1) takes vectors (N, D), others their own events (N, C, H, W) or (N, C, L); a context is ignored.
    """
    return _transform()(layer)


@functools.cache
def _transform() -> Any:
    """Return the class of the transforms, whose base class is imported on use."""
    base: Any = import_library("nflows.transforms.base", "to_nflows").Transform

    class NFlowsTransform(base):
        """A layer as a transform of nflows."""

        def __init__(self, layer: InvertibleLinear) -> None:
            super().__init__()
            self.layer = layer

        def __reduce__(self) -> Any:
            return to_nflows, (self.layer,), self.__getstate__()

        def forward(self, inputs: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
            """Return outputs, and the log-det of each event."""
            return to_latent(self.layer, inputs)

        def inverse(self, inputs: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
            """Return outputs, and the log-det of the inverse for each event."""
            return to_data(self.layer, inputs)

    return NFlowsTransform
