"""Reference pages made from what they describe: the argument parser, the models of suites, data sets and columns."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

import yaml
from pydantic.json_schema import DEFAULT_REF_TEMPLATE, models_json_schema
from repository import DOCS, GENERATED, write_if_changed
from sphinx.application import Sphinx

import harness  # noqa: F401  registers the kinds
from harness.cli import list as listing
from harness.cli.parser import COMMANDS, make_parser
from harness.core.settings import Settings, key_texts
from harness.core.trial import TRIALS
from harness.execution.executor import section_model
from harness.planning.suite_model import SUITES, LayerSettings

FOLDER = GENERATED / "reference"


def command_line() -> Iterator[str]:
    """Yield the page of all commands: the help of each."""
    yield "# Command line"
    yield "`python -m harness COMMAND`; the installed program `invertbench COMMAND` is the same."
    with mock.patch.dict(os.environ, {"COLUMNS": "110"}):
        parser = make_parser()
        yield _text(parser.format_help())
        for name in COMMANDS:
            yield f"## {name}"
            yield _text(_subparsers(parser)[name].format_help())


def _subparsers(parser: Any) -> dict[str, Any]:
    return next(action.choices for action in parser._actions if isinstance(action.choices, dict))


def suite_keys() -> Iterator[str]:
    """Yield the page of the keys of suites, from their JSON schema."""
    kinds = {name: cls.file_model() for name, cls in sorted(SUITES.items())}
    models = [*kinds.values(), section_model()]
    _, schema = models_json_schema([(model, "validation") for model in models], ref_template=DEFAULT_REF_TEMPLATE)
    classes = {cls.__name__: cls for cls in _subclasses(Settings)}
    of_cells: dict[str, str] = {}
    for cls in _subclasses(LayerSettings):
        of_cells |= key_texts(cls)
    yield "# Keys of suites"
    yield (
        "A suite is a YAML file. Its key `kind` says what its trials are, and with it which keys it has. "
        "`python -m harness validate SUITE` names every fault with its line."
    )
    names = {kind: cls.__name__ for kind, cls in kinds.items()}
    yield "\n".join(
        ["| kind | keys |", "|---|---|", *(f"| `{kind}` | [{name}](#{name.lower()}) |" for kind, name in names.items())]
    )
    definitions = schema["$defs"]
    order = [*names.values(), *(name for name in sorted(definitions) if name not in names.values())]
    for name in order:
        definition = definitions[name]
        yield f"## {name}"
        texts = key_texts(classes[name])
        yield _cell((inspect.getdoc(classes[name]) or "").partition("\n\n")[0])
        required = definition.get("required", [])
        rows = []
        for key, value in definition.get("properties", {}).items():
            meaning = texts.get(key) or value.get("description") or of_cells[key]
            cells = (f"`{key}`{', required' * (key in required)}", _type(value), meaning)
            rows.append(f"| {' | '.join(map(_cell, cells))} |")
        if rows:
            yield "\n".join(["| key | value | meaning |", "|---|---|---|", *rows])


def _subclasses(cls: type) -> Iterator[type]:
    for inner in cls.__subclasses__():
        yield inner
        yield from _subclasses(inner)


def _type(schema: Any) -> str:
    """Return the values that a schema allows, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type(part) for part in schema[key]))
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}" if schema.get("items") else "list"
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties") or next(iter(schema.get("patternProperties", {}).values()), None)
        return f"mapping to {_type(inner)}" if isinstance(inner, dict) and inner else "mapping"
    return str(schema.get("type", "any value"))


def data_sets() -> Iterator[str]:
    """Yield the page of the data sets."""
    yield "# Data sets"
    yield "As printed by `python -m harness list datasets`. [Your own data](/how-to/data.md) has examples."
    for page in listing.datasets().split("\n\n"):
        yield f"## {page.partition(':')[0]}"
        yield _text(page)


def result_columns() -> Iterator[str]:
    """Yield the page of the columns of results.csv."""
    yield "# Columns of results"
    yield (
        "`results.csv`, and the frame of `harness.load_results`, have one line for each measured case of every planned "
        "trial. The types are those of pandas; what was not measured is empty."
    )
    meanings = yaml.safe_load((DOCS / "reference" / "columns.yaml").read_text())
    for name, cls in sorted(TRIALS.items()):
        if cls.columns:
            yield f"## {name}"
            rows = [f"| `{column}` | {dtype} | {meanings.get(column, '')} |" for column, dtype in cls.columns.items()]
            yield "\n".join(["| column | type | meaning |", "|---|---|---|", *rows])


def _text(text: str) -> str:
    return f"```text\n{text.strip()}\n```"


def _cell(text: str) -> str:
    """Return a text as the cell of a table."""
    return text.replace("|", r"\|").replace("<", "&lt;").replace("\n", " ").replace("*", r"\*")


def write_reference(app: Sphinx) -> None:
    """Write the pages."""
    pages = {"command-line": command_line, "suites": suite_keys, "datasets": data_sets, "columns": result_columns}
    for name, page in pages.items():
        write_if_changed(FOLDER / f"{name}.md", "\n\n".join(page()) + "\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the step."""
    app.connect("builder-inited", write_reference)
    return {"parallel_read_safe": True}
