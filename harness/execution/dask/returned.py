"""The bytes that a Dask worker returns: one line of JSON, then the files of the trial in the order of that line.

A worker may be anybody's: the command takes a record of the trial that it has sent, the files beside it, and no more.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from harness.core.explain import explain
from harness.core.files import RECORD, read_file, write_atomically
from harness.core.records import OtherSchema, Record, parse_record, remove_old_arrays
from harness.core.settings import Settings
from harness.core.texts import LONGEST
from harness.core.trial import Trial
from harness.execution.folder import writing
from harness.execution.outcome import record_path

HEAD = 1 << 16  # bytes of the line of JSON
LARGEST = {"records": RECORD, "weights": 1 << 31, "logs": 1 << 24, "source": 1 << 24}  # bytes of a file, by folder


class Returned(Settings):
    """The line of JSON.

    Attributes:
        fault: why the trial could not run there; empty if it has left its record.
        code: exit code of the command if no worker can run it.
        lost: whether its process was killed, as a worker may be.
        files: name below the folder of the run -> bytes.
    """

    fault: Annotated[str, Field(max_length=4 * LONGEST)] = ""
    code: Annotated[int, Field(ge=2, le=3)] = 2
    lost: bool = False
    files: Annotated[dict[str, Annotated[int, Field(ge=0)]], Field(max_length=8)] = Field(default_factory=dict)


def packed(trial: Trial, run: Path) -> bytes:
    """Return the bytes for a trial that has left its record in the folder `run`; raise OSError for a larger file."""
    paths = [path for folder in LARGEST for path in sorted((run / folder).glob("*"))]
    files = {path.relative_to(run).as_posix(): path for path in paths if path.is_file()}
    contents = {name: read_file(path, LARGEST[path.parent.name]) for name, path in files.items() if _of(trial, name)}
    head = Returned(files={name: len(content) for name, content in contents.items()})
    return b"".join((head.model_dump_json().encode(), b"\n", *contents.values()))


def unpacked(content: object) -> tuple[Returned, dict[str, bytes]]:
    """Return the line and the files; raise ValueError if `content` has another form."""
    if not isinstance(content, bytes):
        raise ValueError("no bytes")
    end = content.find(b"\n", 0, HEAD)
    if end < 0:
        raise ValueError(f"no line of JSON in its first {HEAD:,} bytes")
    try:
        head = Returned.model_validate_json(content[:end])
    except ValidationError as error:
        raise ValueError(explain(error)[0].message) from error
    if sum(head.files.values()) != len(content) - end - 1:
        raise ValueError("not as many bytes as its line of JSON says")
    files, start = {}, end + 1
    for name, size in head.files.items():
        files[name] = content[start : start + size]
        start += size
    return head, files


def store(trial: Trial, files: dict[str, bytes], out: Path) -> Record:
    """Write the files that a trial has left on a worker, its record last; return the record.

    Raises:
        ValueError: there is no record of the trial, or another file; nothing is written.
        UserError: the folder cannot be written.
    """
    last = f"records/{record_path(out, trial).name}"
    for name, content in files.items():
        if not _of(trial, name) or len(content) > LARGEST[name.partition("/")[0]]:
            raise ValueError(f"{name!a:.200} with {len(content):,} bytes, which is no file of this trial")
    if last not in files:
        raise ValueError("no record")
    try:
        record = parse_record(files[last], trial.id, out, trial)
    except OtherSchema as error:
        raise ValueError("a record of another schema") from error
    arrays = None if record.arrays is None else files.get(f"records/{record.arrays}")
    if record.arrays is not None and (arrays is None or hashlib.sha256(arrays).hexdigest() not in record.arrays):
        raise ValueError("a record without its arrays")
    with writing(out):
        for name in sorted(files, key=lambda name: name == last):
            write_atomically(out / name, files[name])
        remove_old_arrays(out / "records", record)
    return record


def _of(trial: Trial, name: str) -> bool:
    """Return whether a trial leaves a file of this name for the command; others were sent with it."""
    mine = re.escape(trial.id)
    names = (
        rf"records/{mine}(\.[0-9a-f]{{64}}\.npz|\.json)|weights/{mine}\.pt|logs/{mine}\.log|source/[0-9a-f]{{16}}\.diff"
    )
    return re.fullmatch(names, name) is not None
