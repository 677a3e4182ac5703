"""normflows: `normflows.flows` as layers, and layers as flows of it."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from torch import Tensor

from layers.adapters.base import Library, import_library, to_data, to_latent
from layers.base import InvertibleLinear


class NormFlows(Library):
    """Flows of normflows, whose `inverse` maps data to latent variables and whose `forward` generates.

    A layer's forward is the direction in which data are scored and flows are trained: here the library's `inverse`.
    """

    root = "normflows.flows.base:Flow"
    packages: ClassVar = {"normflows": "normflows"}

    def forward(self, built: Any, x: Tensor) -> tuple[Tensor, Any]:
        """Call `inverse`, from data to latent variables."""
        return built.inverse(x)

    def inverse(self, built: Any, y: Tensor) -> tuple[Tensor, Any]:
        """Call `forward`, from latent variables to data."""
        return built.forward(y)


def to_normflows(layer: InvertibleLinear) -> Any:
    """Return a `normflows.flows.Flow` that applies the layer and trains its parameters.

    Its `inverse`, from data to latent variables, is the layer's forward. A layer on (D, 1) takes vectors (N, D), others
    their own events.
    """
    return _flow()(layer)


@functools.cache
def _flow() -> Any:
    """Return the class of the flows, whose base class is imported on use."""
    base: Any = import_library("normflows.flows.base", "to_normflows").Flow

    class NormFlowsFlow(base):
        """A layer as a flow of normflows."""

        def __init__(self, layer: InvertibleLinear) -> None:
            super().__init__()
            self.layer = layer

        def __reduce__(self) -> Any:
            return to_normflows, (self.layer,), self.__getstate__()

        def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
            """Map latent variables to data; return them and the log-det of each event."""
            return to_data(self.layer, z)

        def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
            """Map data to latent variables; return them and the log-det of each event."""
            return to_latent(self.layer, z)

    return NormFlowsFlow
