"""Find the layers, data sets and flows that installed packages offer under a name, by entry points.

A package offers a class with a line of its metadata, such as ``theirs = "their_package.layers:Theirs"`` in the group
``invertbench.layers``. Nothing of the package is imported until the name is looked up.
"""

from __future__ import annotations

import sys
from collections.abc import Container
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points

GROUPS = {"layer": "invertbench.layers", "data set": "invertbench.datasets", "flow": "invertbench.flows"}
"""What is offered -> the group of its entry points."""


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
    for offer in _installed(GROUPS[noun], tuple(sys.path)):
        if offer.name not in own:
            found.setdefault(offer.name, []).append(offer)
    return found


@cache
def _installed(group: str, path: tuple[str, ...]) -> list[Offer]:
    """Return all entry points of a group; `path` is the present sys.path, where packages are found."""
    found = []
    for entry in entry_points(group=group):
        package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown"
        spec = entry.value.partition("[")[0].replace(" ", "")  # without extras
        found.append(Offer(entry.name, spec, f"package {package}, entry point {group}: {entry.name} = {entry.value}"))
    return sorted(found, key=lambda offer: (offer.name, offer.origin))
