"""One JSON file per trial, written atomically: the outcome of a trial, and the only input of reports."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from harness.core.errors import UserError
from harness.core.kinds import kind_of
from harness.core.trial import Trial

SCHEMA = 2
"""The version of the schema of records; records of another version are refused."""

AUDIT_FAILED = "audit failed"
WAY_OUT = "delete it and run the suite again"
TEMPORARY = ".tmp"
MAP = "map "  # begins the names of arrays that show a trained layer (see harness.evaluation.learned_maps)

Status = Literal["ok", "error", "oom", "timeout", "diverged", "killed", "unsupported"]


@dataclass
class Record:
    """The outcome of one trial.

    Attributes:
        trial: the trial's settings, as `Trial.model_dump(mode="json")`.
        status: one of `Status`; `reason` gives the cause unless it is `ok`.
        rows: the measures, one mapping per line of results.csv (a runtime trial has one per layer and
            operation); their names are among the `columns` of the kind (`harness.core.kinds`). Values are plain
            numbers, strings or None; a measure that is not a finite number is None, with the reason in
            `notes[measure]`.
        curves: name -> list of numbers, for training curves ("step", "train", "validation").
        audit: the outcome of the audit (see harness.audit.audit), or empty.
        environment: provenance (see harness.core.provenance.environment).
        notes: remarks for the reader, such as why a measure is missing.
        arrays: file name, beside the record, of an .npz with samples and trained layers (see
            harness.evaluation.learned_maps); None if there are none.
        seconds: wall time of the whole trial.
        started: UTC time, ISO 8601.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: str
    trial: dict[str, Any]
    status: Status
    reason: str | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    curves: dict[str, list[float | None]] = field(default_factory=dict)
    audit: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    arrays: str | None = None
    seconds: float | None = None
    started: str | None = None
    format: int = SCHEMA


_RECORD = TypeAdapter(Record)


class OtherSchema(UserError):
    """A folder holds records of another version of the schema."""


def verdict(record: Record) -> str:
    """Return the status, or "audit failed" if the trial ran but its likelihood is invalid."""
    if record.status == "ok" and any(row.get("audit") == "failed" for row in record.rows):
        return AUDIT_FAILED
    return record.status


def blank_record(trial: Trial, status: Status, reason: str | None) -> Record:
    """Return a record without measures, for a trial that ended in `status`."""
    return Record(id=trial.id, trial=trial.model_dump(mode="json"), status=status, reason=reason)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write, which gets its name only once it is complete and on the disk.

    A reader sees the old content or the new, never a part. A killed writer leaves behind a file that ends in
    `.tmp`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely or not at all (see `atomic_file`)."""
    with atomic_file(path) as file:
        file.write(content)


def _sync_folder(folder: Path) -> None:
    """Flush the new name itself to the disk, if the system can: a later deletion may depend on it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_measures(kind: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Raise ValueError if a row has a measure that is not among the columns of its kind of trial."""
    unknown = sorted({name for row in rows for name in row} - kind_of(kind).columns.keys())
    if unknown:
        raise ValueError(
            f"measure {', '.join(map(repr, unknown))} is not a column of results of kind {kind!r}; name it in "
            f"harness/kinds/{kind}/__init__.py, `columns`"
        )


def write_record(folder: Path, record: Record) -> Path:
    """Write `folder/<id>.json`.

    Raises:
        ValueError: a number is not finite (None plus a note stands for it), or a measure is not a column.
    """
    check_measures(record.trial["kind"], record.rows)
    path = folder / f"{record.id}.json"
    text = json.dumps(asdict(record), allow_nan=False, indent=1, sort_keys=True)
    write_atomically(path, text.encode() + b"\n")
    return path


def read_record(path: Path) -> Record:
    """Return one record.

    Raises:
        OtherSchema: another version wrote it, and with it the others of the folder.
        UserError: the file, which the message names, is damaged or foreign.
    """
    try:
        return parse_record(path.read_bytes(), path.stem, path.parent)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not a readable record ({error}); {WAY_OUT}") from error


def parse_record(content: bytes, name: str, run: Path) -> Record:
    """Return the record of the trial `name` from its JSON.

    Raises:
        OtherSchema: another version wrote it, and with it all others of the folder or archive `run`.
        ValueError: it is damaged or foreign.
    """
    parsed = json.loads(content)
    schema = parsed.get("format") if isinstance(parsed, dict) else None
    if isinstance(schema, int) and schema != SCHEMA:
        raise OtherSchema(
            f"{run}: holds records of schema {schema}, and this version reads schema {SCHEMA}; delete the "
            "folder of the run, or give another --out"
        )
    try:
        record = _RECORD.validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise ValueError(f"{place}: {first['msg']}") from error
    if record.id != name:
        raise ValueError(f"it is the record of {record.id}")
    if not record.trial:
        raise ValueError("it has no settings")
    check_measures(record.trial.get("kind", ""), record.rows)
    return record


def finite(value: float) -> float | None:
    """Return the number if it is finite, else None: JSON has no NaN."""
    value = float(value)
    return value if math.isfinite(value) else None
