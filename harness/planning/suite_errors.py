"""From a validation error to what a reader of the file wants to know: where, what, the rule, the way out."""

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

CUSTOM = ("seeds", "sweep")  # raised by harness.planning.suite_model with a whole sentence

_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "greater than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a suite, at a place in it.

    `at_key` points at the key rather than at the value; `origin` is the command line option that said it, where
    it was not the file.
    """

    place: Place
    message: str
    at_key: bool = False
    origin: str | None = None

    def fault(self, document: Document) -> Fault:
        """The finding with its line and column."""
        if self.origin is not None:
            return Fault(0, 0, f"{self.origin}: {self.message}")
        place = self.place
        if place and place[-1] == "learning_rate" and not document.has(place):
            place = (*place[:-1], "lr")
        line, column = document.key_position(place) if self.at_key else document.position(place)
        return Fault(line, column, self.message)


def raise_faults(name: str, faults: Iterable[Fault]) -> None:
    """Raise one SuiteError with every fault on a line of its own, in the order of the file; none: do nothing."""
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
    """`profiles.quick.widths[1]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")


def findings(error: ValidationError, model: type[BaseModel]) -> list[Finding]:
    """What a validation of `model` found."""
    return [_finding(detail, model) for detail in error.errors(include_url=False)]


def _finding(detail: ErrorDetails, model: type[BaseModel]) -> Finding:
    place, kind, value = tuple(detail["loc"]), detail["type"], detail["input"]
    context: Mapping[str, Any] = detail.get("ctx", {})
    if place and place[-1] == "[key]":
        rule = _rule(kind, context, detail["msg"])
        hint = _nearest_literal(place[-2], context)
        return Finding(place[:-1], f"{dotted(place[:-2])}: the key {place[-2]!r} {rule}{hint}", at_key=True)
    if kind == "missing":
        inside = f" in {dotted(place[:-1])}" if place[:-1] else ""
        return Finding(place[:-1], f"the key {place[-1]!r} is missing{inside}; add it", at_key=True)
    if kind == "extra_forbidden" and place[-1] == "lr":
        return Finding(place, f"{dotted(place)}: short for learning_rate, which is there too; keep one", at_key=True)
    if kind == "extra_forbidden":
        inside = f" in {dotted(place[:-1])}" if place[:-1] else ""
        hint = nearest(str(place[-1]), _keys(model, place[:-1]))
        return Finding(place, f"unknown key {str(place[-1])!r}{inside}; {hint}", at_key=True)
    if kind in _EXPECTED:
        return Finding(place, f"{dotted(place)}: expected {_EXPECTED[kind]}, got {shown(value)}")
    if kind == "literal_error":
        rule = f"{dotted(place)}: {shown(value)} is not one of {context['expected']}"
        return Finding(place, rule + _nearest_literal(value, context))
    if kind in CUSTOM:
        return Finding(place, f"{dotted(place)}: {detail['msg']}")
    return Finding(place, f"{dotted(place)}: {shown(value)} {_rule(kind, context, detail['msg'])}")


def _rule(kind: str, context: Mapping[str, Any], message: str) -> str:
    """The rule that a value of the right type breaks, to be read after the value."""
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
    return f"is wrong: {message}"


def _nearest_literal(value: Any, context: Mapping[str, Any]) -> str:
    """`; did you mean ...?` for a string that is like one of those expected, else nothing."""
    hint = nearest(value, re.findall(r"'([^']*)'", context.get("expected", ""))) if isinstance(value, str) else ""
    return f"; {hint}" if hint.startswith("did you mean") else ""


def shown(value: Any) -> str:
    """A value in words: its type matters where it is the wrong one."""
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


def _keys(model: type[BaseModel], place: Place) -> list[str]:
    """The keys that a mapping at this place may have."""
    annotation: Any = model
    for part in place:
        annotation = _inside(annotation, part)
    found = _model(annotation)
    return list(found.model_fields) if found else []


def _inside(annotation: Any, part: str | int) -> Any:
    found = _model(annotation)
    if found:
        return found.model_fields[str(part)].annotation if part in found.model_fields else None
    arguments = get_args(_plain(annotation))
    return arguments[-1] if get_origin(_plain(annotation)) is dict else arguments[0] if arguments else None


def _plain(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def _model(annotation: Any) -> type[BaseModel] | None:
    """The model behind an annotation, through Annotated and `| None`."""
    annotation = _plain(annotation)
    if get_origin(annotation) in (types.UnionType, typing.Union):
        return next((found for part in get_args(annotation) if (found := _model(part))), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
