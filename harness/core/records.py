"""One JSON file per trial, written atomically: the outcome of a trial, and the only input of reports.

A record is validated when it is read: its schema, the types of its measures, the digest of its settings, which is in
its id, and the checksum of the arrays beside it, which is in their file's name. All else is as the program wrote it.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from harness.core.errors import UserError
from harness.core.explain import explain
from harness.core.files import RECORD, checked_name, read_file, write_atomically
from harness.core.settings import settings_digest
from harness.core.texts import bounded, printable
from harness.core.trial import Trial, trial_class

if TYPE_CHECKING:
    import numpy as np

AUDIT_FAILED = "audit failed"
HINT = "run the suite again"
LONGEST_REASON = 300  # characters of the reason why a record cannot be read
ARRAYS = ".npz"

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


@dataclass
class Record:
    """The outcome of one trial.

    Attributes:
        trial: the trial's settings, as `Trial.model_dump(mode="json")`.
        status: one of `Status`; `reason` gives the cause unless it is `ok`.
        rows: the measures, one mapping per line of results.csv (a runtime trial has one per layer and
            operation); their names are among the `columns` of the trial's class. Values are plain
            numbers, strings or None; a measure that is not a finite number is None, with the reason in
            `notes[measure]`.
        curves: name -> list of numbers, for training curves ("step", "train", "validation").
        audit: the outcome of the audit (see harness.audit.audit), or empty.
        environment: provenance (see harness.core.provenance.environment).
        notes: remarks for the reader, such as why a measure is missing.
        arrays: file name, beside the record, of an .npz with samples and trained layers (see
            harness.evaluation.stored_arrays), by `write_arrays`; None if there are none.
        seconds: wall time of the whole trial.
        started: UTC time, ISO 8601.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: str
    trial: dict[str, Any]
    status: Status
    reason: str | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    curves: dict[str, list[Number | None]] = field(default_factory=dict)
    audit: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    arrays: str | None = None
    seconds: Size | None = None
    started: str | None = None
    format: Literal[2] = 2  # the version of the schema; records of another are refused


_RECORD = TypeAdapter(Record)


def verdict(record: Record) -> str:
    """Return the status, or "audit failed" if the trial ran but its likelihood is invalid."""
    if record.status == "ok" and any(row.get("audit") == "failed" for row in record.rows):
        return AUDIT_FAILED
    return record.status


def blank_record(trial: Trial, status: Status, reason: str | None) -> Record:
    """Return a record without measures, for a trial that ended in `status`."""
    return Record(id=trial.id, trial=trial.model_dump(mode="json"), status=status, reason=reason)


def write_record(folder: Path, record: Record) -> Path:
    """Write `folder/<id>.json`, with its texts bounded and printable.

    Raises:
        ValueError: the record could not be read again, as a number is not finite (None plus a note stands for it), or a
            measure is not a column.
    """
    texts = {name: printable(getattr(record, name)) for name in ("rows", "audit", "environment", "notes")}
    texts["reason"] = None if record.reason is None else bounded(record.reason)
    content = json.dumps(vars(replace(record, **texts)), allow_nan=False, indent=1, sort_keys=True).encode() + b"\n"
    parse_record(content, record.id)
    path = folder / f"{checked_name(record.id)}.json"
    write_atomically(path, content)
    return path


def read_record(path: Path, trial: Trial | None = None) -> Record:
    """Return one record, of this trial if it is given.

    Raises:
        UserError: the file, which the message names, or that of its arrays is damaged or foreign.
    """
    try:
        record = parse_record(read_file(path, RECORD), path.stem, trial)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not a readable record ({_reason(error)}); {HINT}") from error
    if record.arrays is not None:
        read_arrays(path.parent, record.arrays)
    return record


def parse_record(content: bytes, name: str, trial: Trial | None = None) -> Record:
    """Return the record of the trial `name` from its JSON; raise ValueError if it is damaged or foreign."""
    try:
        record = _RECORD.validate_json(content, strict=True)
    except ValidationError as error:
        raise ValueError(bounded(explain(error)[0].message, LONGEST_REASON)) from error
    if record.id != name:
        raise ValueError(f"it is the record of {bounded(record.id)}")
    if not name.endswith(f"-{settings_digest(record.trial)}"):
        raise ValueError("its settings are not those of its trial")
    check_measures(record.trial["kind"], record.rows)
    if record.arrays is not None and not _belongs(record.arrays, name):
        raise ValueError(f"arrays: {bounded(record.arrays)!r:.200} is not the name of its arrays")
    if trial is not None and (fault := trial.fault(record)) is not None:
        raise ValueError(fault)
    return record


def check_measures(kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise ValueError if a row has a measure that is no column of its kind of trial, or not of the column's type."""
    try:
        _row_model(tuple(trial_class(kind).columns.items())).validate_python(rows)
    except ValidationError as error:
        message = f"{explain(error)[0].message}; the `columns` of trials of kind {kind!r} name them, with their types"
        raise ValueError(f"measures: {message}") from error


@cache
def _row_model(columns: tuple[tuple[str, str], ...]) -> TypeAdapter[Any]:
    """Return the model of the rows of a kind, from the pandas types of its columns."""
    fields: dict[str, Any] = {name: TYPES[column] | None for name, column in columns}
    row = with_config(ConfigDict(extra="forbid", strict=True))(TypedDict("Row", fields, total=False))  # type: ignore[operator]
    return TypeAdapter(list[row])  # type: ignore[valid-type]


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or bounded(str(error), LONGEST_REASON)


def write_arrays(folder: Path, name: str, content: bytes) -> str:
    """Write `folder/<name>.<SHA-256>.npz` for the record of the trial `name`; return the name of the file.

    The arrays of an earlier record stay unchanged until the new record replaces it.
    """
    file = f"{name}.{hashlib.sha256(content).hexdigest()}{ARRAYS}"
    write_atomically(folder / checked_name(file), content)
    return file


def read_arrays(folder: Path, file: str) -> Mapping[str, np.ndarray] | None:
    """Return the arrays, by name, of a file of `write_arrays`; None without a file, as in an archive.

    Raises:
        UserError: it is damaged.
    """
    import numpy as np

    try:
        content = read_file(folder / checked_name(file), RECORD)
        if hashlib.sha256(content).hexdigest() != file.removesuffix(ARRAYS).rpartition(".")[2]:
            raise ValueError("its checksum does not fit")
        return np.load(io.BytesIO(content))  # unpacked when they are asked for
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"{folder / file}: damaged arrays ({_reason(error)}); {HINT}") from error


def remove_old_arrays(folder: Path, record: Record) -> None:
    """Remove the arrays of earlier records of the trial."""
    for path in folder.glob(f"{checked_name(record.id)}.*{ARRAYS}"):
        if path.name != record.arrays and _belongs(path.name, record.id):
            path.unlink(missing_ok=True)


def _belongs(file: str, name: str) -> bool:
    return re.fullmatch(rf"{re.escape(name)}\.[0-9a-f]{{64}}{re.escape(ARRAYS)}", file) is not None


def finite(value: float) -> float | None:
    """Return the number if a record can hold it, else None: JSON has no NaN."""
    value = float(value)
    return value if abs(value) <= LARGEST else None
