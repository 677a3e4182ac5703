"""Kinds of trials, one folder each: how a trial runs, its columns, its tables and figures.

Importing this package registers the kind of every folder in it (see `harness.core.kinds`).
"""

from importlib import import_module
from pkgutil import iter_modules

for _folder in iter_modules(__path__):
    import_module(f"{__name__}.{_folder.name}")
