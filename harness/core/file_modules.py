"""Import a file as a module, with the modules beside it.

A file may import a module beside it by its name alone, as a script may, from whatever working directory. A process has
one table of modules: a name beside a file that stands for another module is refused.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from harness.core.errors import UserError
from harness.core.files import SOURCE, read_file
from harness.core.provenance.third_party_files import PACKAGES, follow, location
from harness.core.run_options import PROJECT


def module_of_file(path: Path) -> ModuleType:
    """Return the module of a resolved path, imported once per process; what the file raises propagates.

    Raises:
        UserError: a module beside it has the name of another module of this process.
    """
    # The file of a registered class, or one that is already loaded: importing it again would make a second class.
    if (loaded := _loaded(path)) is not None:
        return loaded
    read_file(path, SOURCE)  # Python would wait for the other end of a pipe
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # behind Python, this project and installed packages
    sys.dont_write_bytecode = True  # it tells a changed file by its size and second alone
    importlib.invalidate_caches()  # a file may be newer than this process
    for file in follow(path.name, path).files:
        if file != path and file.suffix == ".py" and file.is_relative_to(path.parent):
            place = path.parent / file.relative_to(path.parent).parts[0]
            other = location(place.stem)
            if other != place.resolve():
                raise UserError(f"{place} and {other} have one name, and a process imports one of them; rename one")
    if location(path.stem) == path:
        return importlib.import_module(path.stem)
    name = f"third_party_{hashlib.sha256(bytes(path)).hexdigest()}"
    spec = importlib.util.spec_from_file_location(name, path)
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


class _OwnPackages:
    """Find the packages of this project, whatever sys.path says (see `importlib.abc.MetaPathFinder`)."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [str(PROJECT)]) if name in (*PACKAGES, "csrc", "suites") else None


def find_own_packages() -> None:
    """Let the packages of this project be found before others of their names, in whatever folder a command is called.

    Python looks for modules in the working directory first (`python -m`), or where PYTHONPATH says.
    """
    if _OwnPackages not in sys.meta_path:
        sys.meta_path.insert(0, _OwnPackages)
