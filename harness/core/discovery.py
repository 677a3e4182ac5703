"""Find files by their names: those of a room, each with one class of a common base, and those beside a class."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType
from typing import TypeVar

Base = TypeVar("Base")


def names_in(package: ModuleType) -> list[str]:
    """Return the names of the files of a package, in alphabetical order; nothing is imported."""
    return sorted(module.name for module in iter_modules(package.__path__))


def class_in(package: ModuleType, name: str, base: type[Base]) -> type[Base]:
    """Import a file of a package and return its subclass of `base`, of which it has one."""
    module = import_module(f"{package.__name__}.{name}")
    classes = (value for value in vars(module).values() if isinstance(value, type) and issubclass(value, base))
    return next(cls for cls in classes if cls.__module__ == module.__name__)


def sibling(cls: type, name: str) -> ModuleType | None:
    """Return the module of this name in the folder of a class, imported now; None without such a file."""
    path = f"{cls.__module__.rpartition('.')[0]}.{name}"
    return None if find_spec(path) is None else import_module(path)
