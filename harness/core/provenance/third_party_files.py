"""Follow the imports of third-party code: to every file outside of libraries, and to the versions of these.

A file that the source names by a text, such as the weights in `np.load("weights.npy")`, belongs to it if it is beside
the source or in the working directory.

Imports inside of functions are followed as well, and those by `importlib.import_module` with a literal name. Nothing is
imported for it. Files are named relative to the folder in which they were looked for, as records contain no folders.
"""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import NamedTuple

from harness.core.file_modules import PACKAGES, find_top, spec_beside
from harness.core.files import SOURCE, read_file

RECORDED = ("torch", "numpy")
"""Packages whose versions each record has (`harness.core.provenance.environment`), whatever its layer imports."""


class SourceFile(NamedTuple):
    """A file of third-party code, and what its imports are relative to."""

    path: Path
    name: str  # in records, relative to the folder in which it was looked for
    package: str = ""  # that it belongs to; empty for a file of no package
    beside: Path | None = None  # the folder whose modules it may import by name alone; None for a module on sys.path


@dataclass
class Followed:
    """Third-party code: its files, by name in records, and its installed packages, each with its version."""

    files: dict[Path, str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)


def follow(place: str, path: Path | None) -> Followed:
    """Return the files and packages that importing FILE.py, at the resolved `path`, or package.module may import."""
    code = Followed()
    if path is not None:
        waiting = [SourceFile(path, path.name, "", path.parent)]
    else:
        waiting = list(_modules(place, SourceFile(Path(), ""), code))
    while waiting:
        file = waiting.pop()
        if file.path in code.files:
            continue
        code.files[file.path] = file.name
        try:
            tree = ast.parse(read_file(file.path, SOURCE))
        except (OSError, SyntaxError, ValueError):  # compiled, or importing it will raise the error
            continue
        for name, relative in _absolute(file, tree):
            waiting += _modules(name, file, code, relative)
        for path in _named_files(file.path.parent, tree):
            code.files.setdefault(path, path.name)
    return code


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


def imports(tree: ast.AST) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Yield (level, module, names) of each import in a file except for types alone; names are those after "import"."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        waiting += ast.iter_child_nodes(node)
        match node:
            case ast.Import():
                yield from ((0, alias.name, ()) for alias in node.names)
            case ast.ImportFrom():
                yield node.level, node.module or "", tuple(alias.name for alias in node.names)
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                module = name.lstrip(".")
                yield len(name) - len(module), module, ()


def _absolute(file: SourceFile, tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Yield the names that a file imports, relative ones completed, and whether they were relative."""
    for level, module, names in imports(tree):
        base = file.package.split(".") if level and file.package else []
        if level > len(base) + (file.beside is not None):
            continue  # beyond the package: importing it will raise the error
        start = ".".join([*base[: len(base) - level + 1], *([module] if module else [])])
        yield from ((f"{start}.{name}" if start else name, level > 0) for name in names or [""])


def _modules(name: str, importer: SourceFile, code: Followed, relative: bool = False) -> Iterator[SourceFile]:
    """Yield the files that the import of a dotted name runs; add an installed package to `code`."""
    top, *others = filter(None, name.split("."))
    beside, spec = importer.beside, None
    if relative and beside is not None:
        spec = PathFinder.find_spec(top, [str(beside)])
    else:
        beside, spec = _top(top, importer)
    parts = [top]
    while spec is not None:
        path = _path(spec)
        if path is not None and _is_library(path, parts):
            code.packages[top] = _version(top)
            return
        package = ".".join(parts if spec.submodule_search_locations is not None else parts[:-1])
        if path is not None:
            yield SourceFile(path, "/".join(path.parts[-_depth(path, parts) :]), package, beside)
        if not others or spec.submodule_search_locations is None:
            return
        parts.append(others.pop(0))
        spec = PathFinder.find_spec(".".join(parts), list(spec.submodule_search_locations))


def _top(name: str, importer: SourceFile) -> tuple[Path | None, ModuleSpec | None]:
    """Return the folder beside which the first part of a name is found, if it is, and its module."""
    if name in (*PACKAGES, *RECORDED) or name in sys.stdlib_module_names:
        return None, None
    if importer.beside is not None:
        spec = spec_beside(str(importer.beside), name, str(importer.path))
        if spec is not None:
            return importer.beside, spec
    return None, find_top(name)


def _path(spec: ModuleSpec) -> Path | None:
    """Return the file of a module; None for one without, such as a package of several folders."""
    return Path(spec.origin).resolve() if spec.has_location and spec.origin is not None else None


def _depth(path: Path, parts: list[str]) -> int:
    """Return the number of folders and files in which a module is, below the folder where its name was looked for."""
    return len(parts) + (path.stem == "__init__")


def _is_library(path: Path, parts: list[str]) -> bool:
    """Return whether a module belongs to an installed package, rather than to one that is being written."""
    if not {"site-packages", "dist-packages"}.isdisjoint(path.parts):
        return True
    root = path.parents[min(_depth(path, parts), len(path.parents)) - 1]
    return any(root.glob("*.dist-info"))  # of `pip install --target`


@cache
def _version(top: str) -> str:
    """Return the installed version of the package that provides a module; "unknown" without metadata."""
    for name in (top, *packages_distributions().get(top, ())):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "unknown"


def merged(parts: Iterable[Followed]) -> Followed:
    """Return the files and packages of all parts."""
    code = Followed()
    for part in parts:
        code.files |= part.files
        code.packages |= part.packages
    return code
