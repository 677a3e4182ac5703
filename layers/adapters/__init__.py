"""Layers of other libraries as `InvertibleLinear`, and layers of this project as parts of their flows.

One file per library: to add a library, add a file. None of them imports its library before a layer of it is used.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings

from layers.adapters.base import LIBRARIES, Adapted, adapt

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")

from layers.adapters.distributions import to_distributions, to_zuko  # noqa: E402
from layers.adapters.freia import to_freia  # noqa: E402
from layers.adapters.nflows import to_nflows  # noqa: E402
from layers.adapters.normflows import to_normflows  # noqa: E402


def hide_deprecations() -> None:
    """Hide warnings about deprecated functions that a library calls itself, as only its authors can act on them."""
    packages = {package for library in LIBRARIES for package in library.packages} - {"torch"}
    warnings.filterwarnings("ignore", ".*deprecated", module=rf"({'|'.join(sorted(packages))})(\.|$)")


hide_deprecations()

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
