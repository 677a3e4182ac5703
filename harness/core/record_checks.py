"""The schema of a record: its bounded numbers, its measures by column, its environment and its audit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, Required

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from harness.core.settings import settings_digest
from harness.core.trial import trial_class

Status = Literal["ok", "error", "oom", "timeout", "diverged", "killed", "unsupported"]

AuditVerdict = Literal["passed", "failed", "incomplete"]
"""The verdict of an audit: incomplete if nothing failed but a layer could not be audited."""

WHOLE = 1 << 63  # whole numbers are below, as in a column of the frame
LARGEST = 1e100  # other numbers are at most this, so that sums and squares of them are finite

Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Size = Annotated[float, Field(ge=0, le=LARGEST)]
Count = Annotated[int, Field(ge=0, lt=WHOLE)]

TYPES: dict[str, Any] = {
    "Int64": Annotated[int, Field(ge=-WHOLE, lt=WHOLE)],
    "Int64 >= 0": Count,
    "Float64": Number,
    "Float64 >= 0": Size,
    "Float64 in [0, 1]": Annotated[float, Field(ge=0, le=1)],
    "boolean": bool,
    "string": str,
    "string of a status": Status,
}
"""Type of a column, the pandas type first -> type of a measure in a record."""

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
    logdet_error: Size | None
    inverse_error: Size | None
    condition: Size | None
    linear_layers: Count
    audited_layers: Count


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
    try:
        _row_model(tuple(columns.items())).validate_python(rows)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        unknown = sorted({str(fault["loc"][1]) for fault in errors} - columns.keys())
        if unknown:
            raise ValueError(
                f"measure {', '.join(map(repr, unknown))} is not a column of results of kind {kind!r}; name it in "
                f"the `columns` of its trial"
            ) from error
        name, value = str(errors[0]["loc"][1]), errors[0]["input"]
        raise ValueError(f"measure {name!r}: {value!r:.60} is not of its type, {columns[name]}") from error


@cache
def _row_model(columns: tuple[tuple[str, str], ...]) -> TypeAdapter[Any]:
    """Return the model of the rows of a kind, from the pandas types of its columns."""
    fields: dict[str, Any] = {name: TYPES[column] | None for name, column in columns}
    row = with_config(ConfigDict(extra="forbid", strict=True))(TypedDict("Row", fields, total=False))  # type: ignore[operator]
    return TypeAdapter(list[row])  # type: ignore[valid-type]


def check_settings(name: str, trial: Mapping[str, Any]) -> None:
    """Raise ValueError if the settings are not those of the trial `name`, whose id ends with their digest."""
    if not isinstance(trial.get("kind"), str):
        raise ValueError("it has no settings")
    if not name.endswith(f"-{settings_digest(trial)}"):
        raise ValueError("its settings are not those of its trial")
