"""Import a file as a module, with the modules beside it.

A file may import a module beside it by its name alone, as a script may, from whatever working directory. Two folders
may each have a `helper.py`, and a process has one table of modules: so each folder becomes a package of a unique name,
and the files of a folder have an `__import__` that looks there.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from harness.core.files import SOURCE, read_file

PACKAGES = ("layers", "flows", "harness")
"""The packages of this project; no folder of third-party code replaces them."""

PREFIX = "third_party_"

PLACE = str(Path(__file__).resolve().parents[2])
"""The folder that holds the packages of this project."""


def module_of_file(path: Path) -> ModuleType:
    """Return the module of a resolved path, imported once per process; what the file raises propagates."""
    for module in list(sys.modules.values()):
        # The file of a registered class, or one that is already loaded: importing it again would make a second class.
        if getattr(module, "__dict__", {}).get("__file__") == str(path):
            return module
    importlib.invalidate_caches()  # a file may be newer than this process
    _spec_beside.cache_clear()
    package = _package(path.parent)
    name = f"{package}.{path.stem if path.stem.isidentifier() else hashlib.sha256(path.name.encode()).hexdigest()}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_Loader(name, str(path)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before execution: dataclasses and type hints look up their module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def spec_beside(folder: str, name: str, importer: str) -> ModuleSpec | None:
    """Return the module in a folder that a name without dots finds, imported in a file there; None if none.

    Modules of Python and of this project have precedence, and so has a package over a folder without `__init__.py`. A
    file does not find itself: `zuko.py` may import zuko. A module that every file can import by that name, as its
    folder is on sys.path, is imported as usual. `folder` is that of the file, or of the packages in which it is.
    """
    if name in PACKAGES or name in sys.stdlib_module_names:
        return None
    beside = PathFinder.find_spec(name, [folder])
    if beside is None or beside.origin == importer:
        return None
    elsewhere = find_top(name)
    if elsewhere is not None and (beside.origin is None or beside.origin == elsewhere.origin):
        return None
    return beside


def find_top(name: str) -> ModuleSpec | None:
    """Return the module that a name without dots finds on sys.path, without importing it; None if none."""
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):  # it is loaded, and has no spec
        return None


def _package(folder: Path) -> str:
    """Return the name of the package that stands for a folder."""
    name = f"{PREFIX}{hashlib.sha256(str(folder).encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"
    if name not in sys.modules:
        if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Finder())
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        sys.modules[name] = importlib.util.module_from_spec(spec)
    return name


def find_own_packages() -> None:
    """Let the packages of this project be found before others of their names, in whatever folder a command is called.

    Python looks for modules in the working directory first (`python -m`), or where PYTHONPATH says.
    """
    if not any(isinstance(finder, _OwnFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OwnFinder())


class _OwnFinder:
    """Find the packages of this project (see `importlib.abc.MetaPathFinder`)."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [PLACE]) if name in (*PACKAGES, "csrc", "suites") else None


class _Finder:
    """Find the modules of the packages that stand for folders (see `importlib.abc.MetaPathFinder`)."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(PREFIX):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Load a source file of bounded size, whose imports look beside it first; its bytecode is not cached."""

    def get_data(self, path: str) -> bytes:
        return read_file(Path(path), SOURCE)

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        package = sys.modules[module.__name__.partition(".")[0]]
        # Python takes the `__import__` of a module's `__builtins__`.
        module.__dict__["__builtins__"] = vars(builtins) | {"__import__": partial(_import, package)}
        super().exec_module(module)


def _import(
    package: ModuleType,
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    """Import as `__import__`, first from the folder for which `package` stands."""
    top = name.partition(".")[0]
    importer = str((globals or {}).get("__file__"))
    if level or _spec_beside(package.__path__[0], top, importer) is None:
        return builtins.__import__(name, globals, locals, fromlist, level)
    module = builtins.__import__(f"{package.__name__}.{name}", globals, locals, fromlist, 0)
    return module if fromlist else sys.modules[f"{package.__name__}.{top}"]


_spec_beside = cache(spec_beside)  # an import in `forward` may be timed
