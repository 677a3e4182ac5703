"""Resolve the name of a layer in a suite or on a command line to its class, and check options against its signature."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from harness.core.errors import UserError, close_names
from layers import LAYERS, InvertibleLinear, layer_options


def resolve_layer(spec: str, folder: Path | None = None) -> type[InvertibleLinear]:
    """Return the layer class that `spec` names.

    Args:
        spec: a registered name, ``FILE.py:CLASS`` or ``package.module:CLASS``.
        folder: searched first for a relative FILE.py (the suite's folder), before the working directory.

    Raises:
        UserError: there is no such layer, its file cannot be imported, or the class is not a layer.
    """
    place, colon, name = spec.rpartition(":")
    if colon and place and name:
        module = _module_of_file(spec, Path(place), folder) if place.endswith(".py") else _import_module(spec, place)
        return _class_of(module, place, name)
    if spec in LAYERS:
        return LAYERS[spec]
    if colon or spec.endswith(".py"):
        raise UserError(
            f"layer {spec!r}: a file or module, then a colon, then a class; write FILE.py:CLASS or package.module:CLASS"
        )
    raise UserError(
        f"layer {spec!r} is not registered{_nearest(spec, LAYERS)}; the registered layers are "
        f"{', '.join(sorted(LAYERS))}; name one of your own as FILE.py:CLASS or package.module:CLASS"
    )


def check_options(cls: type[InvertibleLinear], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as a dict; raise a UserError that lists every problem that `option_errors` finds."""
    problems = option_errors(cls, options)
    if problems:
        label = cls.registered_name or cls.__name__
        raise UserError("\n".join(f"{label}: option {message}" for _, message in problems))
    return dict(options)


def option_errors(
    cls: type[Any], options: Mapping[str, Any], known: Mapping[str, inspect.Parameter] | None = None
) -> list[tuple[str, str]]:
    """Check options against the constructor's signature: that of a layer, or the `known` parameters of another class.

    Types are strict (no text for a number, no true for 1); a sequence may be given as a list or a tuple.

    Returns:
        (option, message) for each problem, in the order of `options`, missing ones last.
    """
    known = layer_options(cls) if known is None else known
    try:
        hints = get_type_hints(cls.__init__, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        return [
            (name, f"{name}: the type hints of {cls.__name__}.__init__ cannot be read: {error}") for name in options
        ]
    problems = []
    for name, value in options.items():
        if name not in known:
            rule = f"the options are {', '.join(known)}" if known else "this layer has no options"
            problems.append((name, f"{name!r} is unknown{_nearest(name, known)}; {rule}"))
        elif message := _value_error(hints.get(name, Any), value):
            default = known[name].default
            way_out = "" if default is inspect.Parameter.empty else f" (the default is {default!r})"
            problems.append((name, f"{name}: {message}{way_out}"))
    for name, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and name not in options:
            problems.append((name, f"{name!r} has no default: give it a value"))
    return problems


def _value_error(hint: Any, value: Any) -> str | None:
    """Return the problem with a value, or None."""
    expected = _describe(hint)
    try:
        # Strict validation as JSON, not as Python: JSON accepts a list for any sequence type.
        text = json.dumps(value)
        adapter = TypeAdapter(hint, config=ConfigDict(strict=True, arbitrary_types_allowed=True))
        adapter.validate_json(text)
    except ValidationError as error:
        rules = "; ".join(dict.fromkeys(fault["msg"] for fault in error.errors()))
        extra = f" ({rules})" if get_origin(hint) is Annotated else ""
        choices = [choice for choice in _choices(hint) if isinstance(choice, str)]
        nearest = _nearest(value, choices) if isinstance(value, str) else ""
        return f"{_shown(value)} is not {expected}{extra}{nearest}"
    except (TypeError, ValueError, PydanticUserError):
        return f"{_shown(value)} cannot be checked against its type hint, {expected}; give numbers, text or lists"
    return None


def _shown(value: Any) -> str:
    """Return a value as the user wrote it: plans store lists as tuples."""
    return repr(list(value)) if isinstance(value, tuple) else repr(value)


def _choices(hint: Any) -> list[Any]:
    """Return the values that a hint lists by Literal, alone or as a member of a union."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [choice for member in get_args(hint) for choice in _choices(member)]


def _describe(hint: Any) -> str:
    """Return a type hint in words."""
    if get_origin(hint) is Annotated:
        return _describe(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    return inspect.formatannotation(hint)


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return a suggestion to append to a message; empty if no name is close."""
    close = close_names(name, known)
    return f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""


def _module_of_file(spec: str, file: Path, folder: Path | None) -> ModuleType:
    """Import a file once per process, under a module name derived from its path."""
    file = file.expanduser()
    places = [place / file for place in (folder, Path.cwd()) if place is not None]
    path = next((place.resolve() for place in places if place.is_file()), None)
    if path is None:
        tried = ", ".join(dict.fromkeys(str(place.resolve()) for place in places))
        raise UserError(f"layer {spec!r}: there is no such file; looked for {tried}")
    for module in list(sys.modules.values()):
        # The file of a registered layer, or one that is already loaded: importing it again would make a second class.
        if getattr(module, "__dict__", {}).get("__file__") == str(path):
            return module
    name = f"layer_file_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    loader = importlib.util.spec_from_file_location(name, path)
    if loader is None or loader.loader is None:
        raise UserError(f"layer {spec!r}: {path} is not a Python source file")
    module = importlib.util.module_from_spec(loader)
    sys.modules[name] = module  # before execution: dataclasses and type hints look up their module
    try:
        loader.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        for registered in [key for key, cls in LAYERS.items() if cls.__module__ == name]:
            del LAYERS[registered]
        raise UserError(f"layer {spec!r}: {_import_failure(error, path)}") from error
    return module


def _import_module(spec: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UserError(
                f"layer {spec!r}: there is no module {error.name!r}; install its package, put its folder on "
                "PYTHONPATH, or name the file as FILE.py:CLASS"
            ) from error
        raise UserError(f"layer {spec!r}: {_import_failure(error, None)}") from error
    except (Exception, SystemExit) as error:
        raise UserError(f"layer {spec!r}: {_import_failure(error, None)}") from error


def _import_failure(error: BaseException, path: Path | None) -> str:
    """Return an exception of an import with its location: the deepest line of `path`, or of the file that raised."""
    skipped = (__file__, importlib.__file__, "<frozen")
    if isinstance(error, SyntaxError) and error.filename:
        return f"the import fails at {error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename == str(path) or (path is None and not f.filename.startswith(skipped))]
    place = f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
    return f"the import fails{place}: {type(error).__name__}: {error}"


def _class_of(module: ModuleType, place: str, name: str) -> type[InvertibleLinear]:
    found = getattr(module, name, None)
    if isinstance(found, type) and issubclass(found, InvertibleLinear):
        missing = [method for method in ("forward", "inverse") if _is_abstract(found, method)]
        if missing:
            raise UserError(
                f"layer {place}:{name} does not implement {' and '.join(missing)}; "
                "a layer needs forward, and inverse or inverter"
            )
        return found
    candidates = [
        key
        for key, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, InvertibleLinear)
        and not (_is_abstract(value, "forward") or _is_abstract(value, "inverse"))
    ]
    there = f"the layers in it are {', '.join(candidates)}" if candidates else "it holds no layer"
    if not hasattr(module, name):
        raise UserError(f"{place} has no class {name!r}{_nearest(name, candidates)}; {there}")
    raise UserError(f"{place}:{name} is not a subclass of layers.InvertibleLinear; {there}")


def _is_abstract(cls: type[InvertibleLinear], method: str) -> bool:
    return getattr(cls, method) is getattr(InvertibleLinear, method)
