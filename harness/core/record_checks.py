"""The schema of a record: its bounded numbers, its measures by column, its environment and its audit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Required

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from harness.core.settings import settings_digest
from harness.core.trial import trial_class

AuditVerdict = Literal["passed", "failed", "incomplete"]
"""The verdict of an audit: incomplete if nothing failed but a layer could not be audited."""

WHOLE = 1 << 63  # whole numbers are below, as in a column of the frame
LARGEST = 1e100  # other numbers are at most this, so that sums and squares of them are finite


Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]

OPEN = ConfigDict(extra="allow")  # anything under other keys


@with_config(OPEN)
class Commit(TypedDict, total=False):
    """The state of the checkout."""

    commit: Required[str]
    dirty: bool
    diff: str | None


@with_config(OPEN)
class Gpu(TypedDict, total=False):
    """The GPU."""

    name: str | None


@with_config(OPEN)
class Environment(TypedDict, total=False):
    """The provenance of a record (see `harness.core.provenance.environment`), as far as reports read it."""

    versions: dict[str, str | None]
    git: Commit | None
    cuda: Gpu
    kernels: dict[str, str]
    sources: dict[str, str] | None
    cores: int | None
    threads: int | None
    backend: str | None
    cpu: str | None
    host: str | None
    platform: str | None
    instructions: str | None
    matmul_precision: str | None
    deterministic_algorithms: bool | None


@with_config(OPEN)
class AuditRecord(TypedDict, total=False):
    """The outcome of an audit (see `harness.audit.findings`), as far as reports read it; empty without one."""

    verdict: AuditVerdict
    reasons: list[str]
    not_audited: dict[str, str]
    large_layers: dict[str, str]
    logdet_error: float | None
    inverse_error: float | None
    condition: float | None
    linear_layers: int
    audited_layers: int


def check_numbers(values: Iterable[Any]) -> None:
    """Raise ValueError if one of these values of JSON, at any depth, is a number beyond `WHOLE` or `LARGEST`."""
    for value in values:
        kind = type(value)
        if kind is str:  # most of them
            continue
        if kind is float:
            if not abs(value) <= LARGEST:
                raise ValueError(f"the number {value}, not finite or beyond {LARGEST:g}")
        elif kind is int:
            if not -WHOLE <= value < WHOLE:
                raise ValueError(f"the whole number {str(value)[:20]}…, beyond 64 bits")
        elif kind is dict:
            check_numbers(value.values())
        elif kind is list:
            check_numbers(value)


def check_measures(kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise ValueError if a row has a measure that is no column of its kind of trial, or not of the column's type."""
    columns = trial_class(kind).columns
    if not all(row.keys() <= columns.keys() for row in rows):
        unknown = sorted({name for row in rows for name in row} - columns.keys())
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
