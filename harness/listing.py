"""What there is: layers, data sets and packaged suites, as plain tables."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from tabulate import tabulate

from harness.errors import UserError

WIDTH = 60


def layers() -> str:
    """Every registered layer with its options; imports torch, which the layers need."""
    from layers import LAYERS, layer_options

    lines = [
        (name, _summary(cls), "\n".join(map(_signature, layer_options(cls).values())) or "none")
        for name, cls in sorted(LAYERS.items())
    ]
    return _table(lines, ("layer", "what it is", "options"))


def datasets() -> str:
    """Every data set with its event shape and what it takes to have it."""
    from harness.datasets import DATASETS

    lines = [
        (name, "x".join(map(str, dataset.shape({}))), dataset.info.title, dataset.info.how_to_get)
        for name, dataset in DATASETS.items()
    ]
    return _table(lines, ("data set", "shape", "what it is", "how to get it"))


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
