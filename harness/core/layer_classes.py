"""Resolve the name of a layer in a suite or on a command line to its class, and check options against its signature."""

from __future__ import annotations

import contextlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from harness.core.errors import UserError, suggestion
from harness.core.third_party import resolve_class
from layers import LAYERS, InvertibleLinear, layer_options
from layers.adapters import Adapted, adapt
from layers.adapters.expressions import expression_fault
from layers.adapters.modules import lacking


def resolve_layer(spec: str, folder: Path | None = None) -> type[InvertibleLinear]:
    """Return the layer class that `spec` names; see `harness.core.third_party.resolve_class`.

    A transform of nflows, normflows, FrEIA, zuko, pyro or torch.distributions is adapted (see `layers.adapters`), and
    so is a plain module (see `layers.adapters.modules`). The import does not change torch's default dtype.
    """
    with kept_default_dtype():
        return import_layer(spec, folder)


def import_layer(spec: str, folder: Path | None = None) -> type[InvertibleLinear]:
    """Do the same, but keep what the file of the layer does to torch's default dtype."""
    return resolve_class("layer", spec, InvertibleLinear, LAYERS, folder, _adapted)  # type: ignore[type-abstract]


def _adapted(obj: Any) -> type[InvertibleLinear] | str:
    """Return a class or function of another library as a layer; else what would be adapted, for a message."""
    possible = inspect.isclass(obj) or inspect.isroutine(obj)
    adapted = adapt(obj) if possible else None
    return adapted or (
        f", nor a torch.nn.Module with forward(x) -> (y, log_det) and inverse(y) ({lacking(obj)}), nor a transform "
        "of nflows, normflows, FrEIA, zuko, pyro or torch.distributions"
    )


@contextlib.contextmanager
def kept_default_dtype(dtype: torch.dtype | None = None) -> Iterator[None]:
    """Restore torch's default dtype afterwards, which third-party code may set; inside it is `dtype`, if not None."""
    before = torch.get_default_dtype()
    if dtype is not None:
        torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def check_options(cls: type[InvertibleLinear], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as a dict; raise a UserError that lists every problem that `option_errors` finds."""
    problems = option_errors(cls, options)
    if problems:
        label = cls.registered_name or cls.__name__
        raise UserError("\n".join(f"{label}: option {message}" for _, message in problems))
    return dict(options)


def option_errors(
    cls: type[Any], options: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter] | None = None
) -> list[tuple[str, str]]:
    """Check options against the constructor's signature: that of a layer, or `parameters` of another class.

    Types are strict (no text for a number, no true for 1); a sequence may be given as a list or a tuple.

    Returns:
        (option, message) for each problem, in the order of `options`, missing ones last.
    """
    parameters = layer_options(cls) if parameters is None else parameters
    try:
        hints = get_type_hints(cls.__init__, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        return [(name, f"{name}: type hints of {cls.__name__} that cannot be read: {error}") for name in options]
    problems = []
    for name, value in options.items():
        if name not in parameters:
            rule = f"the options are {', '.join(parameters)}" if parameters else "this layer has no options"
            problems.append((name, f"{name!r} is unknown{suggestion(name, parameters)}; {rule}"))
        elif (message := _value_error(hints.get(name, Any), value)) or (
            issubclass(cls, Adapted) and (message := expression_fault(value))
        ):
            default = parameters[name].default
            hint = "" if default is inspect.Parameter.empty else f" (the default is {default!r})"
            problems.append((name, f"{name}: {message}{hint}"))
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in options:
            sizes = f", such as {name}=D; D is the number of entries of an event, and C of its channels"
            problems.append((name, f"{name!r} has no default: give it a value{sizes * issubclass(cls, Adapted)}"))
    return problems


def _value_error(hint: Any, value: Any) -> str | None:
    """Return the problem with a value, or None."""
    expected, shown = _describe(hint), repr(list(value) if isinstance(value, tuple) else value)  # plans store tuples
    try:
        # Strict validation as JSON, not as Python: JSON accepts a list for any sequence type.
        text = json.dumps(value)
        adapter = TypeAdapter(hint, config=ConfigDict(strict=True, arbitrary_types_allowed=True))
        adapter.validate_json(text)
    except ValidationError as error:
        rules = "; ".join(dict.fromkeys(fault["msg"] for fault in error.errors()))
        extra = f" ({rules})" if get_origin(hint) is Annotated else ""
        nearest = suggestion(value, re.findall("'([^']*)'", expected)) if isinstance(value, str) else ""
        return f"{shown} is not {expected}{extra}{nearest}"
    except (TypeError, ValueError, PydanticUserError):
        return f"{shown} cannot be checked against its type hint, {expected}; give numbers, text or lists"
    return None


def _describe(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        return _describe(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    return inspect.formatannotation(hint)
