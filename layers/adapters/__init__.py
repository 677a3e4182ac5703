"""Layers of other libraries as `InvertibleLinear`, and layers of this project as parts of their flows.

One file per library: to add a library, add a file. None of them imports its library before a layer of it is used.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import Any

from layers.adapters.base import LIBRARIES, Adapted, adapted_class

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")

from layers.adapters.distributions import to_distributions, to_zuko  # noqa: E402
from layers.adapters.freia import to_freia  # noqa: E402
from layers.adapters.nflows import to_nflows  # noqa: E402
from layers.adapters.normflows import to_normflows  # noqa: E402


@functools.cache
def adapt(found: Any) -> type[Adapted] | None:
    """Return the layer class of a library's class or of a function that builds its objects; None for others.

    The base classes of `found` name its library. Each class of a library gives one layer class, whose options are the
    parameters of the library's constructor.
    """
    library = next((library for library in LIBRARIES if library.owns(found)), None)
    return None if library is None else adapted_class(library, found)


__all__ = [
    "LIBRARIES",
    "Adapted",
    "adapt",
    "to_distributions",
    "to_freia",
    "to_nflows",
    "to_normflows",
    "to_zuko",
]
