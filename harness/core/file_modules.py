"""Import a file as a module, with the modules beside it.

A file may import a module beside it by its name alone, as a script may, from whatever working directory. A process has
one table of modules: modules of one name beside two files are refused.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from harness.core.errors import UserError
from harness.core.files import SOURCE, read_file
from harness.core.provenance.third_party_files import PACKAGES, follow

PLACE = str(Path(__file__).resolve().parents[2])
"""The folder that holds the packages of this project."""

_places = dict.fromkeys((*PACKAGES, "csrc", "suites"), PLACE)
"""Name of a module -> the folder in which it is, whatever sys.path says: the working directory would be first."""


def module_of_file(path: Path) -> ModuleType:
    """Return the module of a resolved path, imported once per process; what the file raises propagates.

    Raises:
        UserError: a module beside it has the name of another module of this process.
    """
    # The file of a registered class, or one that is already loaded: importing it again would make a second class.
    if (loaded := _loaded(path)) is not None:
        return loaded
    importlib.invalidate_caches()  # a file may be newer than this process
    for file, name in follow(path.name, path).files.items():
        if file != path and file.suffix == ".py" and file.is_relative_to(path.parent):
            _reserve(name.partition("/")[0].removesuffix(".py"), path.parent)
    package = f"third_party_{hashlib.sha256(bytes(path.parent)).hexdigest()[:12]}"
    if package not in sys.modules:  # for relative imports
        _places[package] = str(path.parent)
        sys.modules[package] = ModuleType(package)
        sys.modules[package].__path__ = [str(path.parent)]
    name = f"{package}.{path.stem if path.stem.isidentifier() else hashlib.sha256(bytes(path)).hexdigest()}"
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


def _loaded(path: Path) -> ModuleType | None:
    modules = list(sys.modules.values())
    return next((module for module in modules if getattr(module, "__dict__", {}).get("__file__") == str(path)), None)


def _reserve(name: str, folder: Path) -> None:
    """Let a name stand for the module in a folder; raise UserError if it stands for another."""
    file = next((file for file in (folder / name / "__init__.py", folder / f"{name}.py") if file.is_file()), None)
    other = getattr(sys.modules.get(name), "__file__", None)
    if other is None and _places.get(name, str(folder)) != str(folder):
        other = str(Path(_places[name]) / name)
    if other is not None and file is not None and other != str(file):
        raise UserError(f"{file} and {other} have one name, and a process imports one of them; rename one")
    _places[name] = str(folder)
    if file is not None and (loaded := _loaded(file)) is not None:
        sys.modules[name] = loaded


def find_own_packages() -> None:
    """Let the packages of this project be found before others of their names, in whatever folder a command is called.

    Python looks for modules in the working directory first (`python -m`), or where PYTHONPATH says.
    """
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


class _Finder:
    """Find the modules that have a place (see `importlib.abc.MetaPathFinder`)."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        folder = _places.get(name.partition(".")[0])
        if folder is None or (path is not None and folder == PLACE):
            return None
        spec = PathFinder.find_spec(name, path or [folder], target)
        if folder != PLACE and spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Load a source file of bounded size; its bytecode is not cached, as that tells changes by the second alone."""

    def get_data(self, path: str) -> bytes:
        return read_file(Path(path), SOURCE)

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code
