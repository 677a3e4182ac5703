"""FrEIA: its modules for images and vectors as layers, and layers as modules of its networks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from layers.adapters.base import Library, import_library, to_data, to_latent, vector_shape
from layers.base import InvertibleLinear


class Freia(Library):
    """Modules of FrEIA: lists of tensors in and out, the direction by `rev`, and sizes by `dims_in`."""

    root = "FrEIA.modules.base:InvertibleModule"
    packages: ClassVar = {"FrEIA": "FrEIA"}
    filled = ("dims_in", "dims_c")

    def build(self, make: Callable[..., Any], event: tuple[int, ...], options: dict[str, Any]) -> Any:
        """Return a module with dims_in = [event]; draws by numpy follow torch's generator, numpy's is unchanged."""
        generator: Any = import_library("numpy.random", "FrEIA")
        before = generator.get_state()
        generator.seed(int(torch.randint(2**32, ())))
        try:
            return make([event], **options)
        finally:
            generator.set_state(before)

    def forward(self, built: Any, x: Tensor) -> tuple[Tensor, Any]:
        """Call the module with rev=False."""
        (y,), log_det = built([x], rev=False, jac=True)
        return y, log_det

    def inverse(self, built: Any, y: Tensor) -> tuple[Tensor, Any]:
        """Call the module with rev=True."""
        (x,), log_det = built([y], rev=True, jac=True)
        return x, log_det


@dataclass(frozen=True)
class FreiaMaker:
    """A layer in the place of a module class of FrEIA: called as one, it returns a module.

    Attributes:
        layer: the layer that every module made by this applies.
    """

    layer: InvertibleLinear
    __name__ = "FreiaModule"  # FrEIA names a node without a name by its class

    def __call__(self, dims_in: Any, dims_c: Any = None) -> Any:
        """Return a module for dims_in, [(D,)] for a layer on (D, 1), else [the layer's event shape]."""
        return _module_class()(self, dims_in, dims_c)


def to_freia(layer: InvertibleLinear) -> FreiaMaker:
    """Return what FrEIA takes for a module class, for `SequenceINN.append` and `Node`, which build the module.

    Its only argument is dims_in, [(D,)] for a layer on (D, 1), else [the layer's event shape].
    """
    return FreiaMaker(layer)


@functools.cache
def _module_class() -> Any:
    """Return the class of the modules, whose base class is imported on use."""
    base: Any = import_library("FrEIA.modules.base", "to_freia").InvertibleModule

    class FreiaModule(base):
        """A layer as a module of FrEIA."""

        def __init__(self, maker: FreiaMaker, dims_in: Any, dims_c: Any) -> None:
            super().__init__(dims_in, dims_c)
            self.layer = maker.layer
            self.output_dims(dims_in)

        def __reduce__(self) -> Any:
            return FreiaMaker(self.layer), (self.dims_in, self.dims_c), self.__getstate__()

        def forward(self, x_or_z: Any, c: Any = None, rev: bool = False, jac: bool = True) -> tuple[Any, Tensor]:
            """Return a tuple with the result, and the log-det of each event in this direction."""
            result, log_det = (to_data if rev else to_latent)(self.layer, x_or_z[0])
            return (result,), log_det

        def output_dims(self, input_dims: Any) -> Any:
            """Return the shape of the result, that of the input; raise ValueError for another than the layer's."""
            if [tuple(dims) for dims in input_dims] != [vector_shape(self.layer)]:
                raise ValueError(
                    f"{self.layer.label}: input of shapes {input_dims} where events are {vector_shape(self.layer)}; "
                    "build the layer for the events of the network"
                )
            return input_dims

    return FreiaModule
