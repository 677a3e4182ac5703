"""Translate a pydantic ValidationError: where each fault is, its value, the rule and a hint."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from harness.core.errors import guess, nearest

Place = tuple[str | int, ...]
"""The keys and indices that lead from the top of a value to a part of it."""

_TYPES = {
    **dict.fromkeys(("int_type", "int_from_float"), "a whole number"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "dataclass_type"), "a mapping"),
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a string",
}

_RULES = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be greater than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "too_short": "is too short; it needs at least {min_length}",
    "too_long": "is too long; it takes at most {max_length}",
    "string_too_short": "must not be empty",
    "string_too_long": "must not be longer than {max_length} characters",
    "literal_error": "is not one of {expected}",
}
"""Rule that a value of the right type breaks, to be read after the value, with the context of pydantic's error."""


class Problem(NamedTuple):
    """One fault of a value, such as a suite, and where it is."""

    place: Place
    message: str
    at_key: bool = False  # the key at this place is wrong, rather than its value
    origin: str | None = None  # the option of the command line that set the value


def explain(error: ValidationError, model: type[BaseModel] | None = None) -> list[Problem]:
    """Return the faults that pydantic has found in a value; `model`: of the value, to suggest keys."""
    return [_explained(detail, model) for detail in error.errors(include_url=False)]


def _explained(detail: ErrorDetails, model: type[BaseModel] | None) -> Problem:
    place, kind, value = tuple(detail["loc"]), detail["type"], detail["input"]
    context: Mapping[str, Any] = detail.get("ctx", {})
    outer, name = place[:-1], dotted(place) or "the file"
    inside = f" in {dotted(outer)}" if outer else ""
    rule = _RULES[kind].format(**context) if kind in _RULES else f"is wrong: {context.get('error', detail['msg'])}"
    if kind == "string_pattern_mismatch":
        rule = "is no label: no comma, equals sign, bar or line break, and no space at its ends"
        if context["pattern"].startswith("^[a-z0-9]"):
            rule = "is no name for a folder: use lower-case letters, digits, - and _, a letter or digit first"
    if kind == "literal_error" and isinstance(key := place[-2] if name.endswith("[key]") else value, str):
        hint = guess(key, re.findall(r"'([^']*)'", context["expected"]))
        rule += f"; {hint}" if hint else ""
    if place and place[-1] == "[key]":
        return Problem(outer, f"{dotted(place[:-2])}: the key {place[-2]!r} {rule}", at_key=True)
    if kind == "missing":
        return Problem(outer, f"the key {place[-1]!r} is missing{inside}; add it", at_key=True)
    if kind == "extra_forbidden":
        key = str(place[-1])
        keys = model and model_at(model, outer)
        hint = f"; {nearest(key, keys.model_fields)}" if keys else ""
        return Problem(place, f"unknown key {key!r}{inside}{hint}", at_key=True)
    if kind in _TYPES:
        return Problem(place, f"{name}: expected {_TYPES[kind]}, got {shown(value)}")
    if kind in ("value_error", "json_invalid"):  # the message names the value
        return Problem(place, f"{name}: {context['error']}")
    return Problem(place, f"{name}: {shown(value)} {rule}")


def dotted(place: Place) -> str:
    """Return a place as text, such as `profiles.quick.widths[1]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")


def shown(value: Any) -> str:
    """Return a value in words, with its type."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case str():
            return f"the string {value!r}" if len(value) <= 60 else f"the string {value[:57]!r}..."
        case int() if abs(value) >= 1 << 128:  # Python prints no integer of more than 4,300 digits
            return "a number of more than 38 digits"
        case int() | float():
            return f"the number {value}"
        case list() | tuple():
            return "a list"
        case dict():
            return "a mapping"
    return f"an object of type {type(value).__name__}"


def model_at(model: type[BaseModel], place: Place) -> type[BaseModel] | None:
    """Return the model of the mapping at this place inside a model; None for a value that is no mapping."""
    annotation: Any = model
    for part in place:
        outer = _model(annotation)
        if outer:
            annotation = outer.model_fields[str(part)].annotation if part in outer.model_fields else None
        else:
            plain = _plain(annotation)
            arguments = get_args(plain) or (None,)
            annotation = arguments[-1 if get_origin(plain) in (dict, Mapping) else 0]
    return _model(annotation)


def _plain(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def _model(annotation: Any) -> type[BaseModel] | None:
    """Return the model behind an annotation, through Annotated and `| None`."""
    annotation = _plain(annotation)
    if get_origin(annotation) in (types.UnionType, typing.Union):
        return next((model for part in get_args(annotation) if (model := _model(part))), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
