"""Find the layers, data sets and flows that installed packages offer under a name, by entry points.

A package offers a class with a line of its metadata, such as ``theirs = "their_package.layers:Theirs"`` in the group
``invertbench.layers``. Nothing of the package is imported until the name is looked up.
"""

from __future__ import annotations

import sys
from collections.abc import Container
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points

GROUPS = {"layer": "invertbench.layers", "data set": "invertbench.datasets", "flow": "invertbench.flows"}
"""Noun -> the group of its entry points."""


@dataclass(frozen=True)
class Offer:
    """One entry point.

    Attributes:
        name: under which the class is offered.
        spec: the class, package.module:CLASS.
        origin: the package and its entry point, for messages.
    """

    name: str
    spec: str
    origin: str


def offers(noun: str, own: Container[str]) -> dict[str, list[Offer]]:
    """Return name -> what packages offer under it, in alphabetical order; the project's `own` names are left out."""
    found: dict[str, list[Offer]] = {}
    for entry in _installed(tuple(sys.path))[noun]:
        if entry.name not in own:
            package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown"
            origin = f"package {package}, entry point {entry.group}: {entry.name} = {entry.value}"
            spec = entry.value.partition("[")[0].replace(" ", "")  # without extras
            found.setdefault(entry.name, []).append(Offer(entry.name, spec, origin))
    return {name: sorted(found[name], key=lambda offer: offer.origin) for name in sorted(found)}


@cache
def _installed(path: tuple[str, ...]) -> dict[str, list[EntryPoint]]:
    """Return the entry points of all packages on `path`, the present sys.path; reading them takes 30 ms."""
    found = entry_points()
    return {noun: list(found.select(group=group)) for noun, group in GROUPS.items()}
