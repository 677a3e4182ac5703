"""Resolve the name of a layer, a data set or a flow to its class: registered, or of a third-party file or module."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import json
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from harness.core.errors import UserError, suggestion
from harness.core.file_modules import PACKAGES, Followed, follow, module_of_file
from harness.core.files import SOURCE, read_file

T = TypeVar("T")
Adapt = Callable[[Any], type[T] | str]


def resolve_class(
    noun: str,
    spec: str,
    base: type[T],
    registry: dict[str, type[T]],
    folder: Path | None,
    adapt: Adapt[T] = lambda obj: "",
) -> type[T]:
    """Return the class that `spec` names.

    Args:
        noun: "layer", "data set" or "flow", for messages.
        spec: a registered name, ``FILE.py:CLASS`` or ``package.module:CLASS``.
        base: the class that it must derive from, without methods left abstract.
        registry: name -> class of the registered ones, which importing a file may extend.
        folder: searched first for a relative FILE.py (the suite's folder), before the working directory.
        adapt: returns the class to use in place of a class or function of another library; for all other objects, what
            it would accept, for the message that refuses them.

    Raises:
        UserError: there is no such name, file or class, or it cannot be imported or is not of this kind.
    """
    place, _, name = spec.rpartition(":")
    if place and name:
        said, before = f"{noun} {spec!r}", set(registry)
        try:
            return _class_of(_module(said, place, folder), noun, place, name, base, adapt)
        except BaseException:
            for registered in registry.keys() - before:
                del registry[registered]
            raise
    if spec in registry:
        return registry[spec]
    raise UserError(
        f"{noun} {spec!r} is not registered{suggestion(spec, registry)}; the registered {noun}s are "
        f"{', '.join(sorted(registry))}; name another as FILE.py:CLASS or package.module:CLASS"
    )


def is_own(cls: type) -> bool:
    """Return whether a class is of this project."""
    return cls.__module__.partition(".")[0] in PACKAGES


def is_third_party(spec: str) -> bool:
    """Return whether a name in a trial's settings is that of third-party code."""
    return ":" in spec


def reference(spec: str, folder: Path | None) -> tuple[str, str | None]:
    """Return the name by which a trial refers to third-party code, and the digest of a file.

    A FILE.py:CLASS is returned as seen from the working directory, where trials look for it. Any other spec, and what
    does not exist, is returned unchanged and without a digest.
    """
    file, colon, name = spec.rpartition(":")
    path = _find_file(Path(file), folder) if colon and file.endswith(".py") else None
    if path is None:
        return spec, None
    return f"{from_here(path)}:{name}", source_digest(path)


def from_here(path: Path) -> Path:
    """Return a resolved path relative to the working directory, if it is inside."""
    here = Path.cwd().resolve()
    return path.relative_to(here) if path.is_relative_to(here) else path


def source_digest(path: Path) -> str:
    """Return the digest of a third-party file and of the files that it imports, which enters the id of a trial."""
    try:
        files = follow(path.name, path).files
        digests = sorted((name, hashlib.sha256(read_file(file, SOURCE)).hexdigest()) for file, name in files.items())
    except OSError as error:
        unreadable = error.filename or path
        raise UserError(f"{unreadable}: cannot be read ({error.strerror}); name a Python file that can") from error
    one = digests[0][1]
    return (one if len(digests) == 1 else hashlib.sha256(json.dumps(digests).encode()).hexdigest())[:16]


def followed(spec: str) -> Followed:
    """Return the files and packages of third-party code, FILE.py:CLASS or package.module:CLASS; none if it is gone."""
    place = spec.rpartition(":")[0]
    if not place.endswith(".py"):
        return follow(place, None)
    path = _find_file(Path(place), None)
    return Followed() if path is None else follow(place, path)


_folders: tuple[Path, ...] = ()


@contextlib.contextmanager
def looking_in(folders: Iterable[Path]) -> Iterator[None]:
    """Look for relative files in these folders, then in the present working directory, also if it is changed."""
    global _folders
    before, _folders = _folders, (*folders, Path.cwd())
    try:
        yield
    finally:
        _folders = before


@contextlib.contextmanager
def same_folder() -> Iterator[None]:
    """Return to the working directory afterwards: third-party code may change it, and relative paths depend on it."""
    with contextlib.ExitStack() as later:
        with contextlib.suppress(OSError):  # it no longer exists
            later.callback(os.chdir, Path.cwd())
        yield


@contextlib.contextmanager
def third_party_errors(said: str, action: str, path: Path | None) -> Iterator[None]:
    """Turn any exception of third-party code, other than a UserError, into a UserError with its location.

    The message begins with `said` and the failed `action`, such as "the import". The location is that in the file
    `path`, or in the deepest file.
    """
    try:
        with same_folder():
            yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        reason = f"{type(error).__name__}: {' '.join(text.split())}"
        raise UserError(f"{said}: {action} fails{_location(error, path)}: {reason}") from error


def _location(error: BaseException, path: Path | None) -> str:
    """Return the deepest line of `path` that raised, or of the deepest file outside the import system."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" at {error.filename}:{error.lineno}"
    skipped = (__file__, importlib.__file__, "<frozen")
    frames = traceback.extract_tb(error.__traceback__)
    places = [f for f in frames if f.filename == str(path) or (path is None and not f.filename.startswith(skipped))]
    return f" at {places[-1].filename}:{places[-1].lineno}" if places else ""


def _find_file(file: Path, folder: Path | None) -> Path | None:
    with contextlib.suppress(OSError, ValueError):  # the name is too long for a file, or has a NUL
        return next((place.resolve() for place in _places(file, folder) if place.exists()), None)
    return None


def _places(file: Path, folder: Path | None) -> list[Path]:
    here = () if _folders else (Path.cwd(),)  # which third-party code may have changed, or removed
    return [place / file.expanduser() for place in (*_folders, folder, *here) if place is not None]


def _module(said: str, place: str, folder: Path | None) -> ModuleType:
    path = _find_file(Path(place), folder) if place.endswith(".py") else None
    if path is None and place.endswith(".py"):
        tried = ", ".join(dict.fromkeys(str(tried.resolve()) for tried in _places(Path(place), folder)))
        raise UserError(f"{said}: there is no such file; looked for {tried}")
    with third_party_errors(said, "the import", path):
        return importlib.import_module(place) if path is None else module_of_file(path)


def _class_of(module: ModuleType, noun: str, place: str, name: str, base: type[T], adapt: Adapt[T]) -> type[T]:
    obj = getattr(module, name, None)
    adapted = adapt(obj)
    if not isinstance(adapted, str):
        return adapted
    if isinstance(obj, type) and issubclass(obj, base):
        if missing := _abstract(obj, base):
            raise UserError(f"{noun} {place}:{name} does not implement {' and '.join(missing)}")
        return obj
    classes = {key: value for key, value in vars(module).items() if inspect.isclass(value)}
    fit = [key for key, value in classes.items() if issubclass(value, base) and not _abstract(value, base)]
    there = f"the {noun}s in it are {', '.join(fit[:20])}" if fit else f"it holds no {noun} of this project"
    if not hasattr(module, name):
        raise UserError(f"{place} has no class {name!r}{suggestion(name, classes)}; {there}")
    public = f"{base.__module__.rpartition('.')[0]}.{base.__name__}"
    raise UserError(f"{place}:{name} is not a subclass of {public}{adapted}; {there}")


def _abstract(cls: type, base: type) -> list[str]:
    declared = [method for method, value in vars(base).items() if getattr(value, "__isabstractmethod__", False)]
    return [method for method in declared if getattr(getattr(cls, method), "__isabstractmethod__", False)]
