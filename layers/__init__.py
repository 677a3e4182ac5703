"""Invertible linear layers, one family per file, behind one interface.

Importing this package registers the layer of every file in it: to add a layer, add a file.
"""

import importlib
import pkgutil

from layers.base import (
    LAYERS,
    InvertibleLinear,
    UnknownLayer,
    UnsupportedShape,
    count_entries,
    free_parameters,
    layer_options,
)

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg):
    importlib.import_module(f"{__name__}.{_module}")

__all__ = [
    "LAYERS",
    "InvertibleLinear",
    "UnknownLayer",
    "UnsupportedShape",
    "count_entries",
    "free_parameters",
    "layer_options",
]
