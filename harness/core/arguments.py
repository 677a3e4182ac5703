"""Arguments of functions and commands: each stands once, as a field of a model with its type, rule, default and text.

    class ReportArguments(Settings):
        \"\"\"...

        Attributes:
            archive: also write records.zip.
        \"\"\"

        archive: Flag = False

A function takes them by `taking` or checks its own by `checked`; a command has options of them (`add_arguments`).
"""

from __future__ import annotations

import argparse
import errno
import inspect
import os
from collections.abc import Callable, Collection, Sequence
from functools import partial, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator, Field, ValidationError, create_model

from harness.core.errors import UserError, nearest
from harness.core.explain import explain, shown
from harness.core.run_options import shown_seconds
from harness.core.settings import Settings, key_texts

Model = TypeVar("Model", bound=Settings)
Result = TypeVar("Result")


class Option(NamedTuple):
    """Form of an argument on the command line, where it is not `--name`."""

    metavar: str | None = None
    flags: tuple[str, ...] = ()
    choices: Collection[str] = ()
    read: Callable[[str], Any] = str  # a text as a value, which is then checked


class _Strict(Settings, strict=True):
    """Arguments without conversions, such as that of a text to a number."""


def rule(parse: Callable[[Any], Any], accepted: Any) -> BeforeValidator:
    """Return the rule that `parse` reads a value, or raises ValueError; `accepted`: types of values, for signatures."""
    return BeforeValidator(parse, json_schema_input_type=accepted)


def optional(parse: Callable[[Any], Any], accepted: Any) -> BeforeValidator:
    """Return the same rule for a value that may be None."""
    return rule(lambda value: None if value is None else parse(value), accepted | None)


def path(value: Any) -> Path:
    """Return a path; raise ValueError if a value is none."""
    if not isinstance(value, (str, Path)):
        raise ValueError(f"expected a path, got {shown(value)}")
    try:
        os.lstat(str(value).strip() or "\0")
    except (ValueError, OSError) as error:  # ValueError: a NUL, or half of a pair of characters
        if isinstance(error, ValueError) or error.errno == errno.ENAMETOOLONG:
            raise ValueError(f"{str(value)!r:.80} is no path; name a file or folder") from error
    return Path(value)


def paths(value: Any) -> tuple[Path, ...]:
    """Return one or more paths; raise ValueError if a value is no list of such."""
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError(f"expected a list of paths, one or more, got {shown(value)}")
    return tuple(map(path, value))


def read_whole(text: str) -> int | str:
    """Return the whole number of a text, or else the text."""
    try:
        return int(text)
    except ValueError:
        return text


Place = Annotated[Path, rule(path, str | Path)]
Places = Annotated[tuple[Path, ...], rule(paths, Sequence[str | Path])]
Whole = Annotated[int | None, Field(ge=1, le=1_000_000, strict=True), Option("N", read=read_whole)]


def check(model: type[Model], values: dict[str, Any]) -> Model:
    """Return the arguments as the model has them; raise a UserError that names the first wrong one and its rule."""
    for name in values:
        if name not in model.model_fields:
            raise UserError(f"there is no argument {name!r}; {nearest(name, model.model_fields)}")
    try:
        return model(**values)
    except ValidationError as error:
        raise UserError(explain(error)[0].message) from error


def taking(model: type[Settings]) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Give a function with `**arguments` the signature and the texts of a model, which its docstring then lists."""

    def taken(function: Callable[..., Result]) -> Callable[..., Result]:
        texts = key_texts(model)
        own = [parameter for parameter in inspect.signature(function).parameters.values() if parameter.kind != 4]
        keywords = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=_accepted(field))
            for name, field in model.model_fields.items()
        ]
        function.__signature__ = inspect.Signature([*own, *keywords])  # type: ignore[attr-defined]
        lines = "".join(f"    {name}: {texts[name]}\n" for name in model.model_fields)
        function.__doc__ = inspect.cleandoc(function.__doc__ or "").replace("    **arguments: see below.\n", lines)
        return function

    return taken


def _accepted(field: Any) -> Any:
    accepted = (getattr(rule, "json_schema_input_type", None) for rule in field.metadata)
    return next((hint for hint in accepted if isinstance(hint, type) or get_args(hint)), field.annotation)


def checked(function: Callable[..., Result]) -> Callable[..., Result]:
    """Check the arguments of a function by their type hints; raise a UserError that names a wrong one."""
    signature = inspect.signature(function)
    stated = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    hints = get_type_hints(SimpleNamespace(__annotations__=stated), function.__globals__, include_extras=True)
    fields: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        fields[name] = (hints[name], ... if parameter.default is inspect.Parameter.empty else parameter.default)
    model = create_model(function.__name__, __base__=_Strict, **fields)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        return function(**dict(check(model, given)))

    parameters = signature.parameters.items()
    hinted = [parameter.replace(annotation=_accepted(model.model_fields[name])) for name, parameter in parameters]
    call.__signature__ = signature.replace(parameters=hinted)  # type: ignore[attr-defined]
    return call


def add_arguments(parser: argparse.ArgumentParser, model: type[Settings], *names: str) -> None:
    """Add the options of a command: those of the names, or all of the model's."""
    texts = key_texts(model)
    for name in names or model.model_fields:
        field = model.model_fields[name]
        option = next((rule for rule in field.metadata if isinstance(rule, Option)), Option())
        default = field.default
        text = texts[name].partition("; in Python")[0].rstrip(".").replace("%", "%%")
        about: dict[str, Any] = {"dest": name, "default": default}
        if field.annotation is bool:
            about["action"] = "store_true"
        else:
            named = get_args(field.annotation) if get_origin(field.annotation) is Literal else option.choices
            about |= {"choices": named} if named else {"type": partial(_read, model, name, option)}
            about["metavar"] = option.metavar
        if isinstance(default, tuple):
            about |= {"action": "append", "default": []}
            text += "; repeatable"
        elif default is not None and default is not False:
            text += f" (default: {shown_seconds(default) if isinstance(default, float) else default})"
        parser.add_argument(*(option.flags or (f"--{name.replace('_', '-')}",)), help=text, **about)


def _read(model: type[Settings], name: str, option: Option, text: str) -> Any:
    """Return the value of one option of the command line, or one of several."""
    several = isinstance(model.model_fields[name].default, tuple)
    value = option.read(text)
    try:
        checked_value = getattr(check(model, {name: [value] if several else value}), name)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix(f"{name}: ")) from error
    return checked_value[0] if several else checked_value
