"""Turn docstrings, plain text with `code`, indented formulas and fields, into Markdown or reStructuredText."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx

FIELDS = (
    "Determinant", "Inverse", "Family", "Cost", "Shapes", "Source", "Code", "Parameters", "Singular cases", "Singular",
    "Args", "Raises",
)  # fmt: skip
FIELD = re.compile(rf"({'|'.join(FIELDS)}):(?: (.*))?$")
ITEM = re.compile(r"[\w-]+: ")
COLUMNS = re.compile(r"\S {3,}\S")


def to_markdown(docstring: str) -> str:
    """Return a docstring as Markdown: its fields become definitions, those with columns code."""
    parts: list[str] = []
    lines = inspect.cleandoc(docstring).split("\n")
    while lines:
        line = lines.pop(0)
        field = FIELD.match(line)
        if not field:
            parts.append(line)
            continue
        content = []
        while lines and lines[0].strip() and not FIELD.match(lines[0]):
            content.append(lines.pop(0))
        parts += ["", field[1], *_definition(field[2], content), ""]
    return "\n".join(parts)


def _definition(first: str | None, content: list[str]) -> Iterator[str]:
    """Yield the lines of a definition."""
    block = inspect.cleandoc("\n".join(["", *content])).split("\n") if content else []
    if any(COLUMNS.search(line) for line in block):
        yield f": {first or ''}"
        yield from ["", "  ```text", *(f"  {line}" for line in block), "  ```"]
    elif any(ITEM.match(line) for line in block):
        items: list[str] = []
        for line in block:
            if ITEM.match(line) or not items:
                items.append(line.strip())
            else:
                items[-1] += f" {line.strip()}"
        yield f": {first or ''}" if first else f": - {items.pop(0)}"
        yield from [f"  - {item}" for item in items]
    else:
        yield f": {first or block.pop(0)}"
        yield from [f"  {line}" for line in block]


def escape(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape what reStructuredText would read as markup in a docstring, before napoleon reads its sections."""
    for number, line in enumerate(lines):
        codes = re.split(r"(``[^`]+``|`[^`]+`)", line)
        for index, part in enumerate(codes):
            if part.startswith("`"):
                codes[index] = f"``{part.strip('`')}``"
            else:
                codes[index] = re.sub(r"(?<=\w)_(?!\w)|[|*]", lambda match: f"\\{match[0]}", part)
        lines[number] = "".join(codes)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the escape."""
    app.connect("autodoc-process-docstring", escape, priority=400)
    return {"parallel_read_safe": True}
