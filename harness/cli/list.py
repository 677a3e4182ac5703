"""`list layers|flows|datasets|suites`: list what is available as plain tables and pages."""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING

from tabulate import tabulate

from harness.core.run_options import PROJECT

if TYPE_CHECKING:
    from harness.datasets import Dataset

HELP = "list layers, flows, data sets or suites"
EXAMPLES = ("list layers", "list suites")

WIDTH = 60
PAGE, TITLES = 118, 11  # width of a line of a page, and of the titles before it

LAYER_FIELDS = ("Family", "Source", "forward", "inverse", "log-det", "Shapes")
"""Headings in the docstring of a layer, of which the costs are parts of the field Cost."""

HEADING = re.compile(r"\s*([A-Za-z][\w-]*(?: cases)?):(?:\s+(.*))?$")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the argument of this command."""
    parser.add_argument("what", choices=["layers", "flows", "datasets", "suites"], help="what to list")


def execute(args: argparse.Namespace) -> int:
    """Return 0."""
    print({"layers": layers, "flows": flows, "datasets": datasets, "suites": suites}[args.what]())
    return 0


def layers() -> str:
    """Return the pages of all layers."""
    return "\n\n".join(layer_pages().values())


def layer_pages() -> dict[str, str]:
    """Return a page for each layer, by name, from the text of its file, without imports."""
    named, classes = layer_classes()
    pages = {}
    for name, node in sorted(named.items()):
        docstring = ast.get_docstring(node) or ""
        summary, fields = docstring.partition("\n")[0], docstring_fields(docstring)
        lines = [f"{name}: {summary}"]
        for heading in LAYER_FIELDS:
            lines += _entry(heading.lower(), fields.get(heading, "not stated"))
        pages[name] = "\n".join(lines + _entry("options", "; ".join(_options(node, classes)) or "none"))
    return pages


def layer_classes() -> tuple[dict[str, ast.ClassDef], dict[str, ast.ClassDef]]:
    """Return the classes that register themselves as layers by the name of the layer, and all classes by their own."""
    nodes = [node for file in sorted((PROJECT / "layers").glob("*.py")) for node in ast.parse(file.read_bytes()).body]
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
    keywords = [(node, keyword) for node in classes.values() for keyword in node.keywords if keyword.arg == "name"]
    return {ast.unparse(keyword.value).strip("'"): node for node, keyword in keywords}, classes


def _options(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> list[str]:
    """Return `name = default` for each argument after the shape of a class's constructor, inherited or not."""
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            signature = part.args
            required = len(signature.args) - len(signature.defaults)
            defaults = [*repeat(None, required), *signature.defaults, *signature.kw_defaults]
            arguments = [*zip([*signature.args, *signature.kwonlyargs], defaults, strict=True)][2:]
            return [name.arg if value is None else f"{name.arg} = {ast.unparse(value)}" for name, value in arguments]
    parents = [classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes]
    return _options(parents[0], classes) if parents else []


def docstring_fields(docstring: str) -> dict[str, str]:
    """Return the text after each heading of a docstring ("Name: text"), up to the next heading or an empty line."""
    fields: dict[str, list[str]] = {}
    heading = ""
    for line in docstring.splitlines():
        match = HEADING.match(line)
        if match:
            heading, line = match[1], match[2] or ""
        elif not line.strip():
            heading = ""
        if heading:
            fields.setdefault(heading, []).append(line.strip())
    return {name: " ".join(lines).strip() for name, lines in fields.items()}


def flows() -> str:
    """Return every baseline with its options and its source; imports torch."""
    from flows.baselines import BASELINES, baseline_options, find_baseline

    lines = []
    for name in BASELINES:
        cls = find_baseline(name)
        source = (sys.modules[cls.__module__].__doc__ or "").split("\n")[0]
        options = "\n".join(f"{name} = {option.default!r}" for name, option in baseline_options(cls).items()) or "none"
        lines.append((name, inspect.cleandoc(cls.__doc__ or "").split("\n")[0], source, options))
    return _table(lines, ("flow", "description", "source", "options"))


def datasets() -> str:
    """Return a page for each data set, with its options."""
    from harness.datasets import DATASETS, find_dataset

    return "\n\n".join(_page(name, find_dataset(name)) for name in sorted(DATASETS))


def _page(name: str, dataset: Dataset) -> str:
    info = dataset.info
    shape = "by its options" if dataset.option_errors({}) else "x".join(map(str, dataset.event_shape({})))
    lines = [f"{name}: {info.title}", *_entry("shape", shape), *_entry("what", info.what), *_entry("size", info.size)]
    lines += [*_entry("licence", info.licence), *_entry("from", info.source), *_entry("to get it", info.how_to_get)]
    for number, (option, field) in enumerate(dataset.options_model.model_fields.items()):
        default = "" if field.is_required() else f" = {json.dumps(field.default)}"
        lines += _entry("" if number else "options", f"{option}{default}: {field.description}", hanging=4)
    return "\n".join(lines)


def _entry(title: str, text: str, hanging: int = 2) -> list[str]:
    """Return lines of a page: a title and its text beside it, further lines indented by `hanging` more."""
    indent = " " * (TITLES + hanging)
    first = f"  {title:<{TITLES}}"
    wrapper = textwrap.TextWrapper(PAGE, first, indent, break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(text)


def suites() -> str:
    """Return every packaged suite."""
    from harness.planning.suite import packaged_suites, read_suite

    read = {name: read_suite(name) for name in packaged_suites()}
    lines = [(name, suite.kind, suite.title or name, ", ".join(suite.profile_names)) for name, suite in read.items()]
    return _table(lines, ("suite", "kind", "title", "profiles"))


def _table(lines: Sequence[Sequence[str]], headers: Sequence[str]) -> str:
    widths = [None, *[WIDTH] * (len(headers) - 1)]
    return tabulate(lines, headers=headers, tablefmt="simple", maxcolwidths=widths, disable_numparse=True)
