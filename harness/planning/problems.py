"""Problems of a suite: where each is, its value, the rule and the way out."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from harness.core.errors import SuiteError, nearest
from harness.planning.strict_yaml import Document, Fault, Place

MAX_SHOWN = 50

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a string",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}

_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "greater than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


@dataclass(frozen=True)
class Where:
    """The place of a setting in the file, or the command line option that set it."""

    place: Place
    origin: str | None = None

    def says(self, message: str, at_key: bool = False) -> Problem:
        """Return a problem at this place; `at_key` points at the key rather than at the value."""
        return Problem(self, message, at_key)

    def at(self, place: Place) -> Where:
        """Return a place inside this one."""
        return Where((*self.place, *place), self.origin)


@dataclass(frozen=True)
class Problem:
    """One reason why a suite cannot run, and where it is."""

    where: Where
    message: str
    at_key: bool = False

    def fault(self, document: Document) -> Fault:
        """Return the problem with its line and column."""
        if self.where.origin is not None:
            return Fault(0, 0, f"{self.where.origin}: {self.message}")
        find = document.key_position if self.at_key else document.position
        line, column = find(self.where.place)
        return Fault(line, column, self.message)


def raise_problems(document: Document, found: Iterable[Problem]) -> None:
    """Raise one SuiteError with every problem on a line of its own, in the order of the file; without any, return."""
    raise_faults(document.name, [problem.fault(document) for problem in found])


def raise_faults(name: str, faults: Iterable[Fault]) -> None:
    """Raise one SuiteError with every fault on a line of its own, in the order of the file; without any, return."""
    ordered = sorted(set(faults))
    if not ordered:
        return
    lines = [
        f"{name}:{fault.line}:{fault.column}: {fault.message}" if fault.line else fault.message for fault in ordered
    ]
    if len(lines) > MAX_SHOWN:
        lines[MAX_SHOWN:] = [f"{name}: and {len(lines) - MAX_SHOWN} more"]
    raise SuiteError("\n".join(lines))


def dotted(place: Place) -> str:
    """Return a place as text, such as `profiles.quick.widths[1]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")


def problems(
    error: ValidationError, model: type[BaseModel], kinds: Mapping[str, type[BaseModel]] | None = None
) -> list[Problem]:
    """Return the problems that a validation of `model` has found.

    An unknown key that the same part has in suites of other `kinds` (kind -> model) is reported as such.
    """
    return [_problem(detail, model, kinds or {}) for detail in error.errors(include_url=False)]


def _problem(detail: ErrorDetails, model: type[BaseModel], kinds: Mapping[str, type[BaseModel]]) -> Problem:
    place, kind, value = tuple(detail["loc"]), detail["type"], detail["input"]
    context: Mapping[str, Any] = detail.get("ctx", {})
    outer = place[:-1]
    inside = f" in {dotted(outer)}" if outer else ""
    if place and place[-1] == "[key]":
        rule = _rule(kind, context, detail["msg"])
        hint = _nearest_literal(place[-2], context)
        return Where(outer).says(f"{dotted(place[:-2])}: the key {place[-2]!r} {rule}{hint}", at_key=True)
    if kind == "missing":
        return Where(outer).says(f"the key {place[-1]!r} is missing{inside}; add it", at_key=True)
    if kind == "extra_forbidden":
        key = str(place[-1])
        knowing = [name for name, other in kinds.items() if key in _keys(other, outer)]
        if knowing:
            own = next(name for name, other in kinds.items() if other is model)
            rule = f"{key!r} means nothing in a suite of kind {own}, only of kind {' or '.join(knowing)}; remove it"
            return Where(place).says(rule, at_key=True)
        return Where(place).says(f"unknown key {key!r}{inside}; {nearest(key, _keys(model, outer))}", at_key=True)
    if kind in _EXPECTED:
        return Where(place).says(f"{dotted(place)}: expected {_EXPECTED[kind]}, got {shown(value)}")
    if kind == "literal_error":
        rule = f"{dotted(place)}: {shown(value)} is not one of {context['expected']}"
        return Where(place).says(rule + _nearest_literal(value, context))
    if kind == "value_error":  # raised by a validator of ours, whose message names the value
        return Where(place).says(f"{dotted(place)}: {context['error']}")
    return Where(place).says(f"{dotted(place)}: {shown(value)} {_rule(kind, context, detail['msg'])}")


def _rule(kind: str, context: Mapping[str, Any], message: str) -> str:
    """Return the rule that a value of the right type breaks, to be read after the value."""
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"must be {words} {context[name]}"
    if kind == "too_short":
        return f"is too short; it needs at least {context['min_length']}"
    if kind == "too_long":
        return f"is too long; it takes at most {context['max_length']}"
    if kind == "string_too_short":
        return "must not be empty"
    if kind == "string_too_long":
        return f"must not be longer than {context['max_length']} characters"
    if kind == "string_pattern_mismatch":
        if context["pattern"].startswith("^[a-z0-9]"):
            return "is no name for a folder: use lower-case letters, digits, - and _, a letter or digit first"
        return "is no label: no comma, equals sign, bar or line break, and no space at its ends"
    if kind == "literal_error":
        return f"is not one of {context['expected']}"
    return f"is wrong: {context.get('error', message)}"


def _nearest_literal(value: Any, context: Mapping[str, Any]) -> str:
    """Return `; did you mean ...?` for a string that is similar to an expected one, else an empty text."""
    hint = nearest(value, re.findall(r"'([^']*)'", context.get("expected", ""))) if isinstance(value, str) else ""
    return f"; {hint}" if hint.startswith("did you mean") else ""


def shown(value: Any) -> str:
    """Return a value in words, with its type."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case str():
            return f"the string {value!r}" if len(value) <= 60 else f"the string {value[:57]!r}..."
        case int() | float():
            return f"the number {value}"
        case list() | tuple():
            return "a list"
        case dict():
            return "a mapping"
    return repr(value)


def model_at(model: type[BaseModel], place: Place) -> type[BaseModel] | None:
    """Return the model of the mapping at this place inside a model; None if there is none."""
    annotation: Any = model
    for part in place:
        annotation = _inside(annotation, part)
    return _model(annotation)


def _keys(model: type[BaseModel], place: Place) -> list[str]:
    """Return the keys that the mapping at this place may have."""
    found = model_at(model, place)
    return list(found.model_fields) if found else []


def _inside(annotation: Any, part: str | int) -> Any:
    found = _model(annotation)
    if found:
        return found.model_fields[str(part)].annotation if part in found.model_fields else None
    arguments, origin = get_args(_plain(annotation)), get_origin(_plain(annotation))
    return arguments[-1] if origin in (dict, Mapping) else arguments[0] if arguments else None


def _plain(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def _model(annotation: Any) -> type[BaseModel] | None:
    """Return the model behind an annotation, through Annotated and `| None`."""
    annotation = _plain(annotation)
    if get_origin(annotation) in (types.UnionType, typing.Union):
        return next((found for part in get_args(annotation) if (found := _model(part))), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
