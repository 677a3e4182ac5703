"""Options such as `--set path=value`: read, laid over settings of a file, and blamed for the faults that they cause."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from harness.core.errors import SuiteError
from harness.core.explain import Explained, Place
from harness.planning.strict_yaml import load

Changes = Mapping[Place, str]
"""Place of a setting -> the option that changed it, the last option first."""


def parse_pairs(option: str, texts: Sequence[str], form: str) -> tuple[list[tuple[str, str, Any]], list[str]]:
    """Read `name=value` options: (text, name, value) of each, and the faults of their form and their YAML."""
    pairs: list[tuple[str, str, Any]] = []
    faults: list[str] = []
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            faults.append(f"{option} {text}: not of the form {form}")
            continue
        try:
            pairs.append((text, name, load(value, f"{option} {text}", of_file=False).value))
        except SuiteError as error:
            faults.append(str(error))
    return pairs, faults


def assigned(assignments: Iterable[tuple[str, Place, Any]]) -> tuple[dict[str, Any], Changes]:
    """Return the content that options give, from (option, place, value) of each; a later one has precedence."""
    content: dict[str, Any] = {}
    changes: dict[Place, str] = {}
    for option, place, value in assignments:
        for part in reversed(place):
            value = {part: value}
        content = merged(content, value)
        leaves = dict.fromkeys(_leaves(value, ()), option)
        changes = leaves | {leaf: earlier for leaf, earlier in changes.items() if leaf not in leaves}
    return content, changes


def merged(base: Any, changes: Any, depth: float = math.inf, sections: Container[str] = ()) -> Any:
    """Return YAML values with changes over them: mappings down to `depth` are merged, and what is deeper is replaced.

    Args:
        base: such as a profile, of which each part has settings at most two keys deep: depth 2.
        changes: of the same structure.
        depth: of keys.
        sections: keys of labelled parts, which are as deep themselves; a part that is null has no settings.
    """
    if depth == 2 and changes is None:
        return base
    if not (depth and isinstance(base, dict) and isinstance(changes, dict)):
        return changes
    return base | {
        key: merged(base.get(key), value, depth + 1 if key in sections else depth - 1, sections)
        for key, value in changes.items()
    }


def _leaves(value: Any, place: Place) -> Iterator[Place]:
    """Yield the places of the values in nested mappings, as far as these are not empty."""
    if not (isinstance(value, dict) and value):
        yield place
        return
    for key, inner in value.items():
        yield from _leaves(inner, (*place, key))


def option_behind(changes: Changes, place: Place) -> str | None:
    """Return the first option that changed the setting at this place, something in it or all around it."""
    options = (option for leaf, option in changes.items() if leaf[: len(place)] == place[: len(leaf)])
    return next(options, None)


def blamed(changes: Changes, faults: Iterable[Explained], otherwise: str) -> list[str]:
    """Return the message of each fault after the option that caused it; `otherwise`: all of them together."""
    return [f"{option_behind(changes, fault.place) or otherwise}: {fault.message}" for fault in faults]
