"""Download files into the cache, once and atomically, and compare every file with a checksum.

A checksum is pinned if it is known. Otherwise that of the first use is recorded, and a later file has to match it. A
verified file is recorded with its size and time, so that an unchanged file is read just once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from pathlib import Path, PurePosixPath
from typing import Any

from harness.core.errors import DataError, DataMissing, UserError
from harness.core.records import write_atomically
from harness.datasets._store.store import Store, sha256, unusable

CHUNK = 1 << 16  # bytes per write
TIMEOUT = 30  # seconds without data after which the download fails


def fetch(store: Store, name: str, url: str, pinned: str | None = None, by_hand: str = "") -> Path:
    """Return a file of the cache's downloads, downloaded if it is missing.

    One process downloads while others wait. The file gets its name only when it is complete and its checksum is right;
    the remains of an interrupted download are overwritten by the next.

    Args:
        store: its cache is written, unless it is offline.
        name: the data set, a slash, and the file, such as "mimic/3000063/3000063.hea"; the path below the downloads.
        url: the source of the file (http or https).
        pinned: the file's SHA-256 in hexadecimal; None records that of the first use and compares afterwards.
        by_hand: another way to provide the file, for the message if the download fails; "or put it into ...".

    Raises:
        DataMissing: the file is missing and cannot be downloaded.
        DataError: its checksum is wrong, or the cache cannot be written.
        UserError: the name is outside the downloads.
    """
    parts = PurePosixPath(name).parts
    if len(parts) < 2 or ".." in parts or PurePosixPath(name).is_absolute():
        raise UserError(f"{name!r} is no path below the downloads; it is DATASET/FILE, without '..'")
    path = store.cache / "downloads" / name
    record = _beside(path, ".checksum.json")
    if not path.is_file():
        if store.offline:
            raise DataMissing(
                f"{parts[0]}: {parts[-1]} is not there, and offline nothing is fetched. It comes from {url}; "
                f"put it at {path}{_also(by_hand)}"
            )
        _fetch_locked(store, path, record, url, pinned, by_hand)
    _verify(store, path, record, pinned, parts[0])
    return path


def expect(name: str, file: Path | str, content: bytes, pinned: str) -> None:
    """Raise DataError unless the SHA-256 of a file's content is the pinned one."""
    found = hashlib.sha256(content).hexdigest()
    if found != pinned:
        raise _wrong_sum(name, file, found, pinned, "the right one", "Delete the file and get it anew")


def _fetch_locked(store: Store, path: Path, record: Path, url: str, pinned: str | None, by_hand: str) -> None:
    import filelock

    name = path.relative_to(store.cache / "downloads").parts[0]
    unfinished = _beside(path, ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(_beside(path, ".lock")):
            if path.is_file():  # another process downloaded it while this one waited
                return
            try:
                fault = _download(url, unfinished)
                if fault is not None:
                    raise DataMissing(
                        f"{name}: {path.name} could not be fetched from {url}: {fault}. "
                        f"Try again, or put it at {path}{_also(by_hand)}"
                    )
                _verify(store, unfinished, record, pinned, name, source=url)
                unfinished.replace(path)
            finally:
                unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise unusable(store, error) from error


def _download(url: str, target: Path) -> str | None:
    """Write the content of the URL to `target`; return a one-line description of a failure, or None."""
    import pooch
    import requests

    print(f"fetching {url}", file=sys.stderr, flush=True)
    download = pooch.HTTPDownloader(chunk_size=CHUNK, timeout=TIMEOUT)
    try:
        download(url, str(target), None)
    except requests.RequestException as error:
        return _innermost(error)
    return None


def _innermost(error: BaseException) -> str:
    """Return the first cause of a chain of exceptions, in one line."""
    while True:
        reason = getattr(error, "reason", None) or error.__cause__ or error.__context__
        reason = reason or next((argument for argument in error.args if isinstance(argument, BaseException)), None)
        if not isinstance(reason, BaseException):
            return " ".join((getattr(error, "strerror", None) or str(error) or type(error).__name__).split())
        error = reason


def _verify(store: Store, path: Path, record: Path, pinned: str | None, name: str, source: str | None = None) -> None:
    """Compare a file with the pinned or recorded checksum, and record it; without either, record the checksum.

    Args:
        source: the URL of a file just downloaded, which is not kept if it is wrong; else None.
    """
    known = _read_record(record)
    if known is None and pinned is None and record.exists():
        raise DataError(f"{name}: {record} should hold the SHA-256 of {path.name} and cannot be read; delete it")
    try:
        facts = path.stat()
        stamp = {"bytes": facts.st_size, "mtime_ns": facts.st_mtime_ns}
        if known is not None and {**known, **stamp} == known and pinned in (None, known["sha256"]):
            return
        found = sha256(path)
    except OSError as error:
        raise DataError(f"{name}: {path}: cannot be read ({error.strerror or error})") from error
    expected = pinned or (known["sha256"] if known else None)
    if expected not in (None, found):
        which = "the one of its first use" if pinned is None else "the right one"
        way_out = "Nothing was kept; try again" if source else "Delete the file and get it anew"
        if pinned is None:
            way_out = f"If the change is wanted, delete {record}"
        raise _wrong_sum(name, source or path, found, expected, which, way_out)
    try:
        write_atomically(record, json.dumps({"sha256": found, **stamp}, indent=1).encode())
    except OSError as error:
        raise unusable(store, error) from error


def _wrong_sum(name: str, file: Path | str, found: str, expected: str | None, which: str, way_out: str) -> DataError:
    return DataError(f"{name}: {file}: the file's SHA-256 is {found}, {which} is {expected}. {way_out}")


def _read_record(record: Path) -> dict[str, Any] | None:
    """Return the record of a file; None if there is none, or none that can be read."""
    with contextlib.suppress(OSError, ValueError):
        content = json.loads(record.read_text(encoding="utf-8"))
        if isinstance(content, dict) and isinstance(content.get("sha256"), str):
            return content
    return None


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _also(by_hand: str) -> str:
    return f", {by_hand}" if by_hand else ""
