"""The schema of a record: its JSON with bounded numbers, its measures by column, its environment and its audit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.core.kinds import kind_of
from harness.core.settings import settings_digest

AuditVerdict = Literal["passed", "failed", "incomplete"]
"""The verdict of an audit: incomplete if nothing failed but a layer could not be audited."""

WHOLE = 1 << 63  # whole numbers are below, as in a column of the frame
LARGEST = 1e100  # other numbers are at most this, so that sums and squares of them are finite


class Described(BaseModel):
    """A mapping with typed keys, and anything under others."""

    model_config = ConfigDict(extra="ignore", strict=True)


class Commit(Described):
    """The state of the checkout."""

    commit: str
    dirty: bool = False
    diff: str | None = None


class Gpu(Described):
    """The GPU."""

    name: str | None = None


class Environment(Described):
    """The provenance of a record (see `harness.core.provenance.environment`), as far as reports read it."""

    versions: dict[str, str | None] = Field(default_factory=dict)
    git: Commit | None = None
    cuda: Gpu = Field(default_factory=lambda: Gpu.model_validate({}))
    kernels: dict[str, str] = Field(default_factory=dict)
    sources: dict[str, str] | None = None
    cores: int | None = None
    threads: int | None = None
    backend: str | None = None
    cpu: str | None = None
    host: str | None = None
    platform: str | None = None
    instructions: str | None = None
    matmul_precision: str | None = None
    deterministic_algorithms: bool | None = None


class AuditRecord(Described):
    """The outcome of an audit (see `harness.audit.findings`), as far as reports read it."""

    verdict: AuditVerdict
    reasons: list[str] = Field(default_factory=list)
    not_audited: dict[str, str] = Field(default_factory=dict)
    large_layers: dict[str, str] = Field(default_factory=dict)
    logdet_error: float | None = None
    inverse_error: float | None = None
    condition: float | None = None
    linear_layers: int = 0
    audited_layers: int = 0


_LARGE = re.compile(rb"(?<![\d.])\d{19}|[eE]\+?\d{3}|NaN|Infinity")
"""Found in every JSON text with a number beyond `WHOLE` or `LARGEST`, and in some others."""


def parsed_json(content: bytes) -> Any:
    """Return the value of JSON; raise ValueError if it is none, or has a number beyond `WHOLE` or `LARGEST`."""
    try:
        if _LARGE.search(content) is None:  # a call for each number takes as long as all the rest
            return json.loads(content)
        return json.loads(content, parse_int=_whole, parse_float=_number, parse_constant=_number)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _whole(digits: str) -> int:
    if len(digits) > len(str(-WHOLE)) or not -WHOLE <= int(digits) < WHOLE:
        raise ValueError(f"the whole number {digits[:20]}{'…' * (len(digits) > 20)}, beyond 64 bits")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if not abs(value) <= LARGEST:
        raise ValueError(f"the number {digits[:20]}, not finite or beyond {LARGEST:g}")
    return value


def check_measures(kind: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Raise ValueError if a row has a measure that is no column of its kind of trial, or not of the column's type."""
    columns = kind_of(kind).columns
    unknown = sorted({name for row in rows for name in row} - columns.keys())
    if unknown:
        raise ValueError(
            f"measure {', '.join(map(repr, unknown))} is not a column of results of kind {kind!r}; name it in "
            f"harness/kinds/{kind}/__init__.py, `columns`"
        )
    for row in rows:
        for name, value in row.items():
            if value is not None and not _FITS[columns[name]](value):
                raise ValueError(f"measure {name!r}: {value!r:.60} is not of its type, {columns[name]}")


_FITS = {
    "Int64": lambda value: isinstance(value, int) and not isinstance(value, bool) and -WHOLE <= value < WHOLE,
    "Float64": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
}


def check_settings(name: str, trial: Mapping[str, Any]) -> None:
    """Raise ValueError if the settings are not those of the trial `name`, whose id ends with their digest."""
    if not isinstance(trial.get("kind"), str):
        raise ValueError("it has no settings")
    if not name.endswith(f"-{settings_digest(trial)}"):
        raise ValueError("its settings are not those of its trial")
