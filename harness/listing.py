"""What there is: layers, data sets and packaged suites, as plain tables."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from harness.errors import UserError

if TYPE_CHECKING:
    from harness.datasets import Dataset

WIDTH = 60
PAGE, TITLES = 118, 11  # characters of a line of a page, and of the titles before it
WRAPPING: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def layers() -> str:
    """Every registered layer with its options; imports torch, which the layers need."""
    from layers import LAYERS, layer_options

    lines = [
        (name, _summary(cls), "\n".join(map(_signature, layer_options(cls).values())) or "none")
        for name, cls in sorted(LAYERS.items())
    ]
    return _table(lines, ("layer", "what it is", "options"))


def flows() -> str:
    """Every baseline with its options and where it comes from; imports torch."""
    from flows.baselines import BASELINES, baseline_options, find_baseline

    lines = []
    for name in BASELINES:
        cls = find_baseline(name)
        source = (sys.modules[cls.__module__].__doc__ or "").split("\n")[0]
        options = "\n".join(map(_signature, baseline_options(cls).values())) or "none"
        lines.append((name, _summary(cls), source, options))
    return _table(lines, ("flow", "what it is", "source", "options"))


def datasets() -> str:
    """A page for each data set: what it is, size, licence, source, how to get it, and its options."""
    from harness.datasets import DATASETS

    return "\n\n".join(_page(name, dataset) for name, dataset in DATASETS.items())


def _page(name: str, dataset: Dataset) -> str:
    info = dataset.info
    facts = {
        "shape": _shape(dataset),
        "what": info.what,
        "size": info.size,
        "licence": info.licence,
        "from": info.source,
        "to get it": info.how_to_get,
    }
    lines = [f"{name}: {info.title}"]
    for title, text in facts.items():
        lines += textwrap.wrap(
            text, PAGE, initial_indent=f"  {title:<{TITLES}}", subsequent_indent=" " * (TITLES + 2), **WRAPPING
        )
    for number, (option, field) in enumerate(dataset.options_model.model_fields.items()):
        text = (
            f"{option}: {field.description}"
            if field.is_required()
            else (f"{option} = {_yaml(field.default)}: {field.description}")
        )
        title = "" if number else "options"
        lines += textwrap.wrap(
            text, PAGE, initial_indent=f"  {title:<{TITLES}}", subsequent_indent=" " * (TITLES + 4), **WRAPPING
        )
    return "\n".join(lines)


def _yaml(value: Any) -> str:
    """A default as a suite file would say it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(map(_yaml, value))}]" if isinstance(value, tuple) else str(value)


def _shape(dataset: Dataset) -> str:
    """The event shape; a data set that cannot be had without options has that of its options."""
    return "by its options" if dataset.option_errors({}) else "x".join(map(str, dataset.shape({})))


def suites() -> str:
    """Every packaged suite; a file that cannot be read is listed with the first thing wrong with it."""
    from harness.planning.suite import packaged_suites, read_suite

    lines: list[tuple[str, str, str, str]] = []
    for name in packaged_suites():
        try:
            suite = read_suite(name)
            lines.append((name, suite.kind, suite.title, ", ".join(suite.profiles)))
        except UserError as error:
            lines.append((name, "", str(error).splitlines()[0], ""))
    return _table(lines, ("suite", "kind", "title", "profiles"))


def _table(lines: Sequence[Sequence[str]], headers: Sequence[str]) -> str:
    widths = [None, *[WIDTH] * (len(headers) - 1)]
    return tabulate(lines, headers=headers, tablefmt="simple", maxcolwidths=widths, disable_numparse=True)


def _summary(cls: type) -> str:
    """The first line of the docstring."""
    return (inspect.getdoc(cls) or "").split("\n")[0]


def _signature(option: inspect.Parameter) -> str:
    """`name = default` of an option."""
    return option.name if option.default is inspect.Parameter.empty else f"{option.name} = {option.default!r}"
