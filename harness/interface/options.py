"""Keyword arguments of the Python interface: those of `plan` and `run`, and the texts that stand for mappings.

Settings, selections and resources reach the planning as the texts of the command line, such as "training.steps=100", so
that the plan can state the command that makes it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from harness.core.errors import SuiteError, UserError, nearest
from harness.core.run_options import Stale
from harness.execution.executor import executor_names
from harness.planning.plan import GivenDevice
from harness.planning.strict_yaml import load

Texts = str | Sequence[str] | Mapping[str, Any]
"""`key=value` texts as on the command line, or a mapping."""

TERMS = ("steps", "seconds", "parameters", "width")
"""The measures at which likelihoods can be compared."""

MERGED = Path("reports/merged")
"""Folder below which the results of merged runs and of archives are written, in a folder named after the suite."""

Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class PlanOptions:
    """The options from which a plan is made (see `harness.interface.plan.plan`)."""

    profile: str
    out: Path
    device: GivenDevice
    data: Path | None
    jobs: int | None
    executor: str
    cluster: tuple[str, ...]
    retry_failed: bool
    stale: Stale
    seeds: int | None
    only: tuple[str, ...]
    settings: tuple[str, ...]
    layers: tuple[str, ...]
    unchecked: bool

    @classmethod
    def checked(
        cls,
        *,
        profile: str,
        out: str | Path,
        device: str,
        data: str | Path | None,
        jobs: int | None,
        executor: str,
        cluster: Texts,
        retry_failed: bool,
        stale: str,
        seeds: int | None,
        only: Texts,
        settings: Texts,
        layers: str | Sequence[str],
        unchecked: bool = False,
    ) -> PlanOptions:
        """Return the options of these arguments; raise a UserError that names the first one with a wrong value."""
        check_choice("device", device, get_args(GivenDevice))
        check_choice("executor", executor, executor_names())
        check_choice("stale", stale, get_args(Stale))
        return cls(
            profile=profile,
            out=Path(out),
            device=cast(GivenDevice, device),
            data=None if data is None else Path(data),
            jobs=_count("jobs", jobs),
            executor=executor,
            cluster=setting_texts("cluster", cluster),
            retry_failed=retry_failed,
            stale=cast(Stale, stale),
            seeds=_count("seeds", seeds),
            only=only_texts(only),
            settings=setting_texts("settings", settings),
            layers=(layers,) if isinstance(layers, str) else tuple(layers),
            unchecked=unchecked,
        )


def setting_texts(name: str, value: Texts) -> tuple[str, ...]:
    """Return an argument as texts `path=value`, the values in YAML."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Mapping):
        return tuple(f"{path}={_yaml(name, path, inner)}" for path, inner in value.items())
    return tuple(value)


def only_texts(value: Texts) -> tuple[str, ...]:
    """Return the argument `only` as texts `key=value`, one for each value of a key."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Mapping):
        several = {key: inner if isinstance(inner, (list, tuple)) else [inner] for key, inner in value.items()}
        if (key := next((key for key, texts in several.items() if not texts), None)) is not None:
            raise UserError(f"only: {key}: [] selects nothing; give values, or leave {key!r} out to select all")
        return tuple(f"{key}={text}" for key, texts in several.items() for text in texts)
    return tuple(value)


def quantity(name: str, value: object, parse: Callable[[object], Parsed]) -> Parsed | None:
    """Return a time or an amount, such as "30 min"; None stays None. Raise a UserError for another value."""
    try:
        return None if value is None else parse(value)
    except ValueError as error:
        raise UserError(f"{name}: {error}") from error


def _yaml(name: str, path: str, value: Any) -> str:
    """Return a value as a text that strict YAML reads as this value."""
    if isinstance(value, str):
        try:
            document = load(value, path)
        except SuiteError:
            document = None
        if document is not None and not document.faults and document.value == value:
            return value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{name}: {path}: {value!r:.80} is not a value of a suite; give numbers, texts, lists or mappings"
        ) from error


def check_choice(name: str, value: str, choices: Collection[str]) -> None:
    """Raise a UserError if an argument is not one of the choices."""
    if value not in choices:
        raise UserError(f"{name}: {value!r} is not one of {', '.join(choices)}; {nearest(str(value), choices)}")


def _count(name: str, value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise UserError(f"{name}: expected a whole number of at least 1, got {value!r}")
    return value
