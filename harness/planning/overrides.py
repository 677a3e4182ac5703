"""`--set`, `--seeds` and `--only`: the changes of the command line to a profile, and its selection of trials."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from harness.core.errors import SuiteError, UserError, nearest
from harness.planning.problems import problems
from harness.planning.resolve import Overrides
from harness.planning.strict_yaml import Place, load
from harness.planning.suite_model import Profile

PATHS = (
    "seeds, threads, timeout, memory, remark, rows, widths, flow.X, training.X, timing.X, "
    "(layers|flows).ROW.(options|flow|training).X, datasets.LABEL.X, averages.LABEL"
)


def parse_overrides(
    models: Mapping[str, type[BaseModel]],
    kind: str,
    settings: Sequence[str],
    seeds: int | None,
    rows: Iterable[str],
    columns: Iterable[str],
) -> Overrides:
    """Read `--set path=value` options; a later one has precedence.

    Args:
        models: kind -> the model of its profiles.
        kind: of the suite.
        settings: texts "path=value", the value in strict YAML.
        seeds: of `--seeds`; `--set seeds=...` has precedence.
        rows: labels that may follow `layers.` or `flows.`; needed because a label may itself contain dots.
        columns: labels that may follow `datasets.`.

    Raises:
        SuiteError: with one line for each option that is wrong.
    """
    rows, columns = list(rows), list(columns)
    merged: dict[str, Any] = {}
    origins: dict[Place, str] = {}
    faults: list[str] = []

    def add(origin: str, path: tuple[str, ...], value: Any) -> None:
        for part in reversed(path):
            value = {part: value}
        wrong = messages(value)
        if wrong:
            hint = f" (paths: {PATHS})" if len(path) == 1 and wrong[0].startswith("unknown key") else ""
            faults.extend(f"{origin}: {message}{hint}" for message in wrong)
            return
        _merge(merged, value)
        origins.pop(path, None)
        origins[path] = origin

    def messages(value: Any) -> list[str]:
        try:
            models[kind].model_validate(value)
        except ValidationError as error:
            return [problem.message for problem in problems(error, models[kind], models)]
        return []

    if seeds is not None:
        add(f"--seeds {seeds}", ("seeds",), seeds)
    for text in settings:
        path, equals, _ = text.partition("=")
        if not equals or not path.strip():
            faults.append(f"--set {text}: not of the form path=value, such as training.steps=100; paths: {PATHS}")
            continue
        value, wrong = _value(text)
        faults += wrong
        if not wrong:
            add(f"--set {text}", split_path(path.strip(), rows, columns), value)
    # Each may be right alone and wrong with the others.
    faults = faults or [f"--set: {message}" for message in messages(merged)]
    if faults:
        raise SuiteError("\n".join(dict.fromkeys(faults)))
    profile = cast(Profile, models[kind].model_validate(merged))
    # Later options first: where two give one setting, the later one has set it.
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
    """Return the value behind the first `=` of a `--set` option, and its faults as YAML."""
    try:
        document = load(text.partition("=")[2], f"--set {text}")
    except SuiteError as error:
        return None, [str(error)]
    return document.value, [f"--set {text}: {fault.message}" for fault in document.faults]


def split_path(path: str, rows: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Split `layers.butterfly.options.levels` into its parts; a known label stays whole, even with dots in it."""
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


def _merge(into: dict[str, Any], new: dict[str, Any]) -> None:
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


@dataclass(frozen=True)
class Selection:
    """The values of `--only`, of which a trial must have one per key; a key without values selects everything."""

    layer: tuple[str, ...] = ()
    dataset: tuple[str, ...] = ()
    seed: tuple[str, ...] = ()
    claim: tuple[str, ...] = ()

    def pick(self, key: str, candidates: Mapping[str, str]) -> list[str]:
        """Return the labels that this key selects.

        Args:
            key: layer, dataset or seed.
            candidates: label -> the name of its layer or data set; a value that is no label may be such a name.

        Raises:
            UserError: a value selects nothing; the message lists the candidates.
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
    """Read `--only key=value[,value...]` options; values of one key add up, several keys must all match."""
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
