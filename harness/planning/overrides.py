"""`--set`, `--seeds` and `--only`: what the command line changes in a profile, and what it picks from it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.core.errors import SuiteError, UserError, nearest
from harness.planning.resolve import Overrides
from harness.planning.strict_yaml import Place, load
from harness.planning.suite_errors import findings
from harness.planning.suite_model import Profile

PATHS = (
    "seeds, threads, timeout, memory, remark, rows, widths, flow.X, training.X, timing.X, "
    "(layers|flows).ROW.(options|flow|training).X, datasets.LABEL.X, averages.LABEL"
)


def parse_overrides(
    settings: Sequence[str], seeds: int | None, rows: Iterable[str], columns: Iterable[str]
) -> Overrides:
    """Read `--set path=value` options, the later over the earlier.

    Args:
        settings: texts "path=value", the value in strict YAML.
        seeds: of `--seeds`, weaker than any `--set seeds=...`.
        rows: labels that may follow `layers.` or `flows.`; needed because a label may itself contain dots.
        columns: labels that may follow `datasets.`.

    Raises:
        SuiteError: with one line for each option that is wrong.
    """
    rows, columns = list(rows), list(columns)
    merged: dict[str, Any] = {}
    origins: dict[Place, str] = {}
    faults: list[str] = []
    if seeds is not None:
        faults += _add(merged, origins, f"--seeds {seeds}", ("seeds",), seeds)
    for text in settings:
        path, equals, _ = text.partition("=")
        if not equals or not path.strip():
            faults.append(f"--set {text}: not of the form path=value, such as training.steps=100; paths: {PATHS}")
            continue
        value, wrong = _value(text)
        faults += wrong or _add(merged, origins, f"--set {text}", split_path(path.strip(), rows, columns), value)
    if faults:
        raise SuiteError("\n".join(dict.fromkeys(faults)))
    try:
        profile = Profile.model_validate(merged)
    except ValidationError as error:  # each is right alone, but not together
        raise SuiteError("\n".join(f"--set: {finding.message}" for finding in findings(error, Profile))) from error
    # Later options first: where two speak of one setting, the later one has set it.
    return Overrides(profile, dict(reversed(origins.items())))


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """Read the `--set option=value` options of one layer; a SuiteError names every one that is wrong."""
    options: dict[str, Any] = {}
    faults: list[str] = []
    for text in texts:
        name, equals, _ = text.partition("=")
        if not equals or not name.strip():
            faults.append(f"--set {text}: not of the form option=value, such as levels=3")
            continue
        value, wrong = _value(text)
        faults += wrong
        options[name.strip()] = value
    if faults:
        raise SuiteError("\n".join(faults))
    return options


def _value(text: str) -> tuple[Any, list[str]]:
    """The value behind the first `=` of a `--set` option, and what is wrong with it as YAML."""
    try:
        document = load(text.partition("=")[2], f"--set {text}")
    except SuiteError as error:
        return None, [str(error)]
    return document.value, [f"--set {text}: {fault.message}" for fault in document.faults]


def split_path(path: str, rows: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """`layers.butterfly.options.levels` -> its parts; a known label stays whole, whatever dots it has."""
    path = re.sub(r"(^|\.)training\.lr$", r"\1training.learning_rate", path)
    head, _, rest = path.partition(".")
    if not rest:
        return (head,)
    if head not in ("layers", "flows", "datasets"):
        return (head, *rest.split("."))
    labels = columns if head == "datasets" else rows
    whole = [label for label in labels if rest == label or rest.startswith(f"{label}.")]
    label = max(whole, key=len) if whole else rest.partition(".")[0]
    inner = rest[len(label) + 1 :]
    if not inner:
        return (head, label)
    return (head, label, *(split_path(inner, rows, ()) if head == "datasets" else inner.split(".")))


def _add(
    merged: dict[str, Any], origins: dict[Place, str], origin: str, path: tuple[str, ...], value: Any
) -> list[str]:
    """Lay one setting over the others if it is right in itself; else what is wrong with it."""
    single = value
    for part in reversed(path):
        single = {part: single}
    try:
        Profile.model_validate(single)
    except ValidationError as error:
        hint = f" (paths: {PATHS})" if len(path) == 1 and path[0] not in Profile.model_fields else ""
        return [f"{origin}: {finding.message}{hint}" for finding in findings(error, Profile)]
    _merge(merged, single)
    origins.pop(path, None)
    origins[path] = origin
    return []


def _merge(into: dict[str, Any], new: dict[str, Any]) -> None:
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


@dataclass(frozen=True)
class Selection:
    """What `--only` picks: per key the values that a trial must have one of; an absent key picks everything."""

    layer: tuple[str, ...] = ()
    dataset: tuple[str, ...] = ()
    seed: tuple[str, ...] = ()
    claim: tuple[str, ...] = ()

    def pick(self, key: str, candidates: Mapping[str, str]) -> list[str]:
        """The labels that this key picks.

        Args:
            key: layer, dataset or seed.
            candidates: label -> the name of its layer or data set; a value that is no label may be such a name.

        Raises:
            UserError: a value picks nothing; the message lists what there is.
        """
        wanted: tuple[str, ...] = getattr(self, key)
        picked: set[str] = set()
        for value in wanted:
            found = {value} & set(candidates) or {label for label, name in candidates.items() if name == value}
            if not found:
                known = ", ".join(candidates) or "nothing"
                raise UserError(f"--only {key}={value}: nothing in this profile has it; there is {known}")
            picked |= found
        return [label for label in candidates if not wanted or label in picked]


def parse_only(texts: Sequence[str], keys: Sequence[str] = ("layer", "dataset", "seed")) -> Selection:
    """Read `--only key=value[,value...]` options; values of one key add up, keys narrow each other down."""
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
    return Selection(**{key: tuple(values) for key, values in picked.items()})


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
    """The command that makes the same plan again, for a report: without folders of this machine."""

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
