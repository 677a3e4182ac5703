"""Third-party code outside of libraries: find its files and the versions of its libraries, and import a file of it.

Code consists of its file, and of all modules and packages beside it whose names occur in an import of one of them,
also inside of functions, or by `importlib.import_module` with a literal name; of a package, of all its files. A file
that a text in the source names, such as the weights in `np.load("weights.npy")`, belongs to it if it is beside the
source or in the working directory. Files are named relative to the folder in which they were looked for, as records
contain no folders. Nothing is imported to find them.

A file may import a module beside it by its name alone, as a script may, from whatever working directory. A process has
one table of modules: a name beside a file that stands for another module is refused.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType

from harness.core.errors import UserError
from harness.core.files import SOURCE, read_file
from harness.core.provenance.environment import package_version
from harness.core.run_options import PROJECT

PACKAGES = ("layers", "flows", "harness")
"""The packages of this project; no folder of third-party code replaces them."""

RECORDED = ("torch", "numpy")
"""Packages whose versions each record has (`harness.core.provenance.environment`), whatever its layer imports."""

_PARSER = threading.Lock()  # ast.parse in several threads at once may raise SystemError in Python 3.11


@dataclass
class Followed:
    """Third-party code: its files, by name in records, and its installed packages, each with its version."""

    files: dict[Path, str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)


def follow(place: str, path: Path | None) -> Followed:
    """Return the files and packages that importing FILE.py, at the resolved `path`, or package.module may import."""
    code = Followed()
    waiting = [(path.parent, path)] if path is not None else _files_of(place.partition(".")[0], None, None, code)
    while waiting:
        root, file = waiting.pop()
        if file in code.files:
            continue
        code.files[file] = file.relative_to(root).as_posix()
        try:
            with _PARSER:
                tree = ast.parse(read_file(file, SOURCE))
        except (OSError, SyntaxError, ValueError):  # compiled, or importing it will raise the error
            continue
        for name in {name.partition(".")[0] for name in imported(tree)}:
            waiting += _files_of(name, root, file, code)
        for named in _named_files(file.parent, tree):
            code.files.setdefault(named, named.name)
    return code


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the name of each module that a file imports, and of all that it imports from one, but for relative ones."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module
                yield from (f"{module}.{alias.name}" for alias in node.names)
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name


def _files_of(name: str, root: Path | None, importer: Path | None, code: Followed) -> list[tuple[Path, Path]]:
    """Return the folder and the files of the module or package of a name without dots that a file imports.

    It is looked for in the folder `root` of the importer, then on sys.path; a library is added to `code`, with its
    version. Modules of Python and of this project have precedence, and so has a library over a folder without
    `__init__.py`. A file does not find itself: `zuko.py` may import zuko.
    """
    if name in (*PACKAGES, *RECORDED) or name in sys.stdlib_module_names:
        return []
    place = location(name)
    beside = [] if root is None else [(root, file) for file in _modules(root, name) if file != importer]
    if beside and (place is None or beside[0][1].name in (f"{name}.py", "__init__.py")):
        return beside
    if place is None:
        return []
    if not {"site-packages", "dist-packages"}.isdisjoint(place.parts) or any(place.parent.glob("*.dist-info")):
        code.packages[name] = _version(name)
        return []
    return [(place.parent, file) for file in _modules(place.parent, name)]


def _modules(folder: Path, name: str) -> list[Path]:
    """Return the file of a module in a folder, or all files of a package, its `__init__.py` first."""
    start = folder / name / "__init__.py"
    if (folder / f"{name}.py").is_file() and not start.is_file():
        return [folder / f"{name}.py"]
    return sorted((folder / name).rglob("*.py"), key=lambda file: (file != start, file))


def location(top: str) -> Path | None:
    """Return the file or folder of a module or package on sys.path; None if it is not found."""
    with contextlib.suppress(ImportError, ValueError):  # it is loaded, and has no spec
        spec = importlib.util.find_spec(top)
        if spec is not None and spec.submodule_search_locations:
            return Path(next(iter(spec.submodule_search_locations))).resolve()
        if spec is not None and spec.has_location:
            return Path(str(spec.origin)).resolve()
    return None


def _named_files(folder: Path, tree: ast.AST) -> Iterator[Path]:
    """Yield the files of at most SOURCE bytes that texts in a source name, in its folder or the working directory."""
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    for text in sorted(texts):
        if "." in text and "\n" not in text and not text.endswith(".py"):
            for path in (folder / text, Path.cwd() / text):
                with contextlib.suppress(OSError, ValueError):  # no name of a file
                    if path.is_file() and path.stat().st_size <= SOURCE:
                        yield path.resolve()
                        break


@cache
def _version(top: str) -> str:
    """Return the installed version of the package that provides a module; "unknown" without metadata."""
    versions = map(package_version, (top, *packages_distributions().get(top, ())))
    return next(filter(None, versions), "unknown")


def module_of_file(path: Path) -> ModuleType:
    """Return the module of a resolved path, imported once per process; what the file raises propagates.

    Raises:
        UserError: a module beside it has the name of another module of this process.
    """
    # The file of a registered class, or one that is already loaded: importing it again would make a second class.
    for loaded in list(sys.modules.values()):
        if getattr(loaded, "__dict__", {}).get("__file__") == str(path):
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


class OwnPackages:
    """Find the packages of this project before others of their names (see `importlib.abc.MetaPathFinder`).

    Python looks for modules in the working directory first (`python -m`), or where PYTHONPATH says.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return where a package of the project is; None for every other module."""
        return PathFinder.find_spec(name, [str(PROJECT)]) if name in (*PACKAGES, "csrc", "suites") else None
