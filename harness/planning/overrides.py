"""`--set`, `--seeds` and `--only`: the changes of the command line to a profile, and its selection of trials."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from harness.core.errors import SuiteError, UserError, nearest
from harness.planning.problems import problems
from harness.planning.resolve import Overrides
from harness.planning.strict_yaml import Place, load
from harness.planning.suite_model import Profile


def parse_overrides(
    models: Mapping[str, type[BaseModel]],
    kind: str,
    labels: Mapping[str, Sequence[str]],
    settings: Sequence[str],
    seeds: int | None,
) -> Overrides:
    """Read `--set path=value` options, of which a later one has precedence, over `--seeds`.

    Args:
        models: kind -> the model of its profiles.
        kind: of the suite.
        labels: key of a profile -> the labels that may follow it; needed because a label may itself contain dots.
        settings: texts "path=value", the value in strict YAML.
        seeds: of `--seeds`.

    Raises:
        SuiteError: with one line for each option that is wrong.
    """
    model = models[kind]
    paths = f"paths begin with {', '.join(model.model_fields)}"
    found, faults = parse_pairs("--set", settings, f"path=value, such as flow.width=32; {paths}")
    given = [(f"--set {text}", split_path(path, labels), value) for text, path, value in found]
    if seeds is not None:
        given.insert(0, (f"--seeds {seeds}", ("seeds",), seeds))
    merged: dict[str, Any] = {}
    origins: dict[Place, str] = {}
    for origin, path, value in given:
        for part in reversed(path):
            value = {part: value}
        wrong = _messages(value, kind, models)
        hint = f" ({paths})" if len(path) == 1 and any(message.startswith("unknown key") for message in wrong) else ""
        faults += [f"{origin}: {message}{hint}" for message in wrong]
        if not wrong:
            _merge(merged, value)
            origins.pop(path, None)
            origins[path] = origin
    # Each may be right alone and wrong with the others.
    faults = faults or [f"--set: {message}" for message in _messages(merged, kind, models)]
    if faults:
        raise SuiteError("\n".join(dict.fromkeys(faults)))
    # Later options first: where two give one setting, the later one has set it.
    return Overrides(cast(Profile, model.model_validate(merged)), dict(reversed(origins.items())))


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """Read the `--set option=value` options of one layer; a SuiteError names every one that is wrong."""
    found, faults = parse_pairs("--set", texts, "option=value, such as levels=3")
    if faults:
        raise SuiteError("\n".join(faults))
    return {name: value for _, name, value in found}


def parse_pairs(option: str, texts: Sequence[str], form: str) -> tuple[list[tuple[str, str, Any]], list[str]]:
    """Read `name=value` options: (text, name, value) of each, and the faults of their form and their YAML."""
    found: list[tuple[str, str, Any]] = []
    faults: list[str] = []
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            faults.append(f"{option} {text}: not of the form {form}")
            continue
        try:
            document = load(value, f"{option} {text}")
        except SuiteError as error:
            faults.append(str(error))
            continue
        faults += [f"{option} {text}: {fault.message}" for fault in document.faults]
        if not document.faults:
            found.append((text, name, document.value))
    return found, faults


def _messages(value: Any, kind: str, models: Mapping[str, type[BaseModel]]) -> list[str]:
    """Return the problems of a part of a profile."""
    try:
        models[kind].model_validate(value)
    except ValidationError as error:
        return [problem.message for problem in problems(error, models[kind], models)]
    return []


def split_path(path: str, labels: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Split `layers.butterfly.options.levels` into its parts; a known label stays whole, even with dots in it."""
    head, _, rest = path.partition(".")
    if not rest or head not in labels:
        return (head, *rest.split(".")) if rest else (head,)
    whole = [label for label in labels[head] if rest == label or rest.startswith(f"{label}.")]
    label = max(whole, key=len) if whole else rest.partition(".")[0]
    inner, others = rest[len(label) + 1 :], {key: known for key, known in labels.items() if key != head}
    return (head, label, *(split_path(inner, others) if inner else ()))


def _merge(into: dict[str, Any], new: dict[str, Any]) -> None:
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def pick(selection: Mapping[str, Sequence[str]], key: str, candidates: Mapping[str, str]) -> list[str]:
    """Return the labels that the values of a key select: a value is a label, or the name behind labels.

    Raises:
        UserError: a value selects nothing; the message lists the candidates.
    """
    picked: set[str] = set()
    for value in selection[key]:
        found = {value} & set(candidates) or {label for label, name in candidates.items() if name == value}
        if not found:
            known = ", ".join(candidates) or "nothing"
            raise UserError(f"--only {key}={value}: nothing in this profile has it; there is {known}")
        picked |= found
    return [label for label in candidates if not selection[key] or label in picked]


def parse_only(texts: Sequence[str], keys: Sequence[str] = ("layer", "dataset", "seed")) -> dict[str, list[str]]:
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


def run_command(
    suite: str,
    profile: str,
    device: str,
    *,
    only: Sequence[str],
    settings: Sequence[str],
    layers: Sequence[str],
    seeds: int | None,
    data: Path | None,
    unchecked: bool = False,
) -> str:
    """Return the command that makes the same plan again, for a report: without folders of this machine."""

    def shown(place: str) -> str:
        return Path(place).name if Path(place).is_absolute() else place

    words = ["python", "-m", "harness", "run", shown(suite), "--profile", profile, "--device", device]
    words += [word for text in only for word in ("--only", text)]
    words += ["--seeds", str(seeds)] if seeds is not None else []
    words += ["--data", "ROOT"] if data is not None else []
    words += [word for setting in settings for word in ("--set", setting)]
    words += [word for layer in layers for word in ("--layer", shown(layer))]
    words += ["--unchecked"] if unchecked else []
    return shlex.join(words)
