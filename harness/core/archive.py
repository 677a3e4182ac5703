"""The records of a run, from its folder or from an archive: one file with plan and records, which can be committed.

An archive is a zip file of two members, `plan.json` and `records.jsonl` with one record per line, without samples and
weights. The records are one member, as LZMA then compresses what they have in common: a member for each would take
seven times the space, and deflate half as much again.
"""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from harness.core.errors import UserError
from harness.core.files import RECORD, read_file
from harness.core.records import LONGEST_REASON, Record, parse_record, read_record
from harness.core.texts import bounded
from harness.core.trial import Trial

FILE = "records.zip"
MEMBERS = ("plan.json", "records.jsonl")
HINT = "make the archive again: python -m harness report DIR --archive"
DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Archive:
    """The content of an archive: the plan, and by trial id the records, as JSON."""

    plan: bytes
    records: Mapping[str, bytes]

    @classmethod
    def read(cls, path: Path) -> Archive:
        """Read an archive into memory; raise a UserError if it is damaged or another kind of file."""
        try:
            return _unpacked(read_file(path, RECORD))
        except Exception as error:  # zipfile, its decompressors and json raise many kinds on a damaged file
            text = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise UserError(f"{path}: not a readable archive of records ({text}); {HINT}") from error


@lru_cache(maxsize=1)  # a report reads its archive for the plan, for strays and for records; unpacking takes seconds
def _unpacked(content: bytes) -> Archive:
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        plan, records = map(file.read, MEMBERS)
    lines = records.splitlines()
    by_id = {str(json.loads(line)["id"]): line for line in lines}
    if len(by_id) < len(lines):
        raise ValueError("two of its records have one id")
    return Archive(plan, by_id)


def archive_bytes(plan: bytes, records: Iterable[Record]) -> bytes:
    """Return the archive of a plan, as in plan.json, and its records; the same records give the same bytes."""
    ordered = sorted(records, key=lambda record: record.id)
    lines = [json.dumps(vars(record), allow_nan=False, sort_keys=True, separators=(",", ":")) for record in ordered]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_LZMA) as file:
        for name, data in zip(MEMBERS, (plan, "".join(f"{line}\n" for line in lines).encode()), strict=True):
            entry = zipfile.ZipInfo(name, DATE)
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_LZMA, 3, 0o644 << 16
            file.writestr(entry, data)
    return content.getvalue()


def archive_of(run: Path) -> Path | None:
    """Return the archive that holds a run: the file itself, or the one in a folder without records; None without."""
    with reading(run):
        if run.is_file():
            return run
        archive = run / FILE
        return archive if archive.is_file() and not (run / "records").is_dir() else None


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Turn an error of the disk inside the context into a UserError that names the folder."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{folder}: cannot be read ({error.strerror or error}); make it readable for this user, or give another"
        ) from error


@dataclass(frozen=True)
class StoredRecords:
    """The records of a run."""

    records: Mapping[str, Record]  # by trial id; those of the planned trials first, in their order
    damaged: Mapping[str, str]  # trial id -> why its record cannot be read, with the file's path below the run


def read_records(run: Path, trials: Iterable[Trial], others: bool = False, planned: bool = True) -> StoredRecords:
    """Return the records of these trials, all others or both, as far as a run's folder or archive holds them.

    Raises:
        UserError: the archive or the folder cannot be read.
    """
    by_id, contents = {trial.id: trial for trial in trials}, _contents(run)
    names = [name for name in by_id if planned and name in contents]
    names += [name for name in contents if others and name not in by_id]
    records: dict[str, Record] = {}
    damaged: dict[str, str] = {}
    for name in names:
        content = contents[name]
        try:
            if isinstance(content, Path):
                records[name] = read_record(content, by_id.get(name))
            else:
                records[name] = parse_record(content, name, by_id.get(name))
        except UserError as error:
            damaged[name] = str(error).removeprefix(f"{folder_of(run)}/")
        except ValueError as error:
            archive = run.name if run.is_file() else FILE
            reason = bounded(str(error), LONGEST_REASON)
            damaged[name] = f"{archive}: not a readable record of {name} ({reason}); {HINT}"
    return StoredRecords(records, damaged)


def _contents(run: Path) -> Mapping[str, Path | bytes]:
    """Return, by trial id, the files of the records in a run's folder, or their JSON in an archive."""
    if (archive := archive_of(run)) is not None:
        return dict(sorted(Archive.read(archive).records.items()))
    folder = run / "records"
    with reading(folder):  # a glob would find nothing in a folder that cannot be read
        paths = sorted(folder.iterdir()) if folder.exists() else []
    return {path.stem: path for path in paths if path.suffix == ".json" and not path.name.startswith(".")}


def folder_of(run: Path) -> Path:
    """Return the folder of a run, or the one that its archive is in."""
    return run.parent if run.is_file() else run
