"""`--set`, `--seeds` and `--only`: the changes of the command line to a profile, and its selection of trials.

Options `path=value` are read, laid over settings of a file, and blamed for the faults that they cause.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.core.errors import SuiteError, UserError, nearest, suggestion
from harness.core.explain import Place, Problem, explain
from harness.planning.cells import Changes, Scope, Where, option_behind
from harness.planning.strict_yaml import load
from harness.planning.suite_base import Suite
from harness.planning.suite_model import Row

_BETWEEN_OPTIONS = re.compile(r",(?![^\[{]*[\]}])")  # a comma that is in no list or mapping


def scope_of(
    suite: Suite,
    name: str,
    settings: Sequence[str] = (),
    layers: Sequence[str] = (),
    datasets: Sequence[str] = (),
    seeds: int | None = None,
) -> Scope:
    """Return one profile of a suite under the changes of the command line.

    Args:
        suite: which has the profile.
        name: of the profile.
        settings: texts "path=value" of `--set`, the value in strict YAML; a later one has precedence.
        layers: third-party layers that become rows, of `--layer`.
        datasets: files that become columns, of `--dataset` (see `added_column`).
        seeds: of `--seeds`; `--set` has precedence.

    Raises:
        UserError: there is no such profile.
        SuiteError: with one line for each option that is wrong.
    """
    profile: Any = suite.profiles.get(name)
    if profile is None:
        raise UserError(
            f"suite {suite.suite} has no profile {name!r}{suggestion(name, suite.profiles)}; it has "
            f"{', '.join(suite.profiles)} (--profile NAME)"
        )
    key, here = suite.columns_key, ("profiles", name)
    rows, added, faults = suite.rows(), list[tuple[str, Place, Any]](), list[str]()
    for spec in layers:
        if (label := spec.rpartition(":")[2]) in rows:
            faults.append(f"--layer {spec}: the suite has a row {label!r} already; give the class another name")
        rows[label] = Row(layer=spec), Where((), f"--layer {spec}")
    rows = {label: rows[label] for section in suite.sections for label in rows if rows[label][0].section == section}
    labels = {section: list(rows) for section in suite.sections} | {key: list(getattr(profile, key))}
    for text in datasets:
        try:
            label, column = added_column(suite, text, labels[key])
        except UserError as error:
            faults.append(f"--dataset {text}: {error}")
            continue
        labels[key].append(label)
        added.append((f"--dataset {text}", (key, label), column))
    form = f"path=value, such as flow.width=32; paths begin with {', '.join(type(profile).model_fields)}"
    pairs, wrong_pairs = parse_pairs("--set", settings, form)
    faults += wrong_pairs
    assignments = [*added, *((f"--set {text}", tuple(path.split(".")), value) for text, path, value in pairs)]
    if seeds is not None:
        assignments.insert(0, (f"--seeds {seeds}", ("seeds",), seeds))
    content, changes = assigned(assignments)
    wrong = []
    for label in content[key] if isinstance(content.get(key), dict) else ():
        if label not in labels[key]:
            noun = "data set" if key == "datasets" else key.removesuffix("s")
            message = f"profiles.{name} has no {noun} {label!r}; {nearest(label, labels[key])}"
            wrong.append(Problem((key, label), message))
    whole = merged(suite.origin.document.value["profiles"][name], content, 2, labels)
    if content:
        try:
            profile = type(profile).model_validate(whole)
        except ValidationError as error:
            wrong += explain(error, type(profile))
    faults += blamed(changes, wrong, "--set")
    if faults:
        raise SuiteError("\n".join(dict.fromkeys(faults)))
    inside = {(*here, *place): option for place, option in changes.items()}
    return Scope(suite, name, profile, whole, inside, rows)


def added_column(suite: Suite, text: str, taken: Container[str]) -> tuple[str, dict[str, Any]]:
    """Return the label and the content of a column of a file, from "LABEL=FILE" or "LABEL=FILE:option=value,...".

    The data set is the one that takes the file, with the options that it proposes, and those that the text gives.

    Raises:
        UserError: the suite has no data sets, the label is taken, no data set takes the file, or the form is wrong.
    """
    from harness.datasets import proposed

    if suite.columns_key != "datasets":
        raise UserError(f"a suite of the kind {suite.kind} has no data sets")
    label, _, place = (part.strip() for part in text.partition("="))
    file, _, rest = (place, "", "") if Path(place).exists() else place.partition(":")
    if not label or not file:
        raise UserError("not of the form LABEL=FILE or LABEL=FILE:option=value,option=value")
    if label in taken:
        raise UserError(f"there is a data set {label!r}; give this one another label")
    path = Path(file).expanduser().resolve()
    name, options = proposed(path)
    beside = os.path.relpath(path, suite.origin.folder or Path())  # as the suite would name it
    if suite.origin.folder is None:
        beside = f"./{beside}" if path.is_relative_to(Path.cwd()) else str(path)
    options = {option: beside if value == str(path) else value for option, value in options.items()}
    pairs, faults = parse_pairs("an option", _BETWEEN_OPTIONS.split(rest) if rest else [], "option=value")
    if faults:
        raise UserError("; ".join(faults))
    return label, {"data": name, "options": options | {option: value for _, option, value in pairs}}


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """Read the `--set option=value` options of one layer; a SuiteError names every one that is wrong."""
    pairs, faults = parse_pairs("--set", texts, "option=value, such as levels=3")
    if faults:
        raise SuiteError("\n".join(faults))
    return {name: value for _, name, value in pairs}


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


def blamed(changes: Changes, faults: Iterable[Problem], otherwise: str) -> list[str]:
    """Return the message of each fault after the option that caused it; `otherwise`: all of them together."""
    return [f"{option_behind(changes, fault.place) or otherwise}: {fault.message}" for fault in faults]


def pick(selection: Mapping[str, Sequence[str]], key: str, candidates: Mapping[str, str]) -> list[str]:
    """Return the labels that the values of a key select: a value is a label, or the name behind labels.

    Raises:
        UserError: a value selects nothing; the message lists the candidates.
    """
    picked: set[str] = set()
    for value in selection[key]:
        named = {value} & set(candidates) or {label for label, name in candidates.items() if name == value}
        if not named:
            names = list(dict.fromkeys(filter(None, [*candidates, *candidates.values()])))
            raise UserError(f"--only {key}={value}: nothing in this profile has it; {nearest(value, names)}")
        picked |= named
    return [label for label in candidates if not selection[key] or label in picked]


def parse_only(
    texts: Sequence[str], keys: Sequence[str] = ("layer", "dataset", "seed", "repetition")
) -> dict[str, list[str]]:
    """Read `--only key=value[,value...]` options: the values of each key; one without values selects everything."""
    picked: dict[str, list[str]] = {key: [] for key in keys}
    for text in texts:
        key = ""
        for part in text.split(","):
            name, equals, value = part.partition("=")
            key, value = (name.strip(), value.strip()) if equals else (key, part.strip())
            if not key or not value:
                raise UserError(f"--only {text}: not of the form key=value, such as layer=butterfly")
            if key not in keys:
                raise UserError(f"--only {text}: unknown key {key!r}; {nearest(key, keys)}")
            picked[key].append(value)
    return picked
