"""Download files into the cache, once and atomically; a file whose checksum is pinned is compared with it.

A loader compares pinned files again when it reads them (`expect`). A file without a pinned checksum has no other check
than those of its format; a change of it changes the checksum of the prepared arrays, and with it the trials.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path, PurePosixPath

from harness.core.errors import DataError, DataMissing, UserError
from harness.datasets._store.store import Store, sha256, unusable

CHUNK = 1 << 16  # bytes per write
TIMEOUT = 30  # seconds without data after which the download fails


def fetch(store: Store, name: str, url: str, pinned: str | None = None, by_hand: str = "") -> Path:
    """Return a file of the cache's downloads, downloaded if it is missing.

    One process downloads while others wait. The file gets its name only when it is complete and a pinned checksum is
    right; the remains of an interrupted download are overwritten by the next.

    Args:
        store: its cache is written, unless it is offline.
        name: the data set, a slash, and the file, such as "mimic/3000063/3000063.hea"; the path below the downloads.
        url: the source of the file (http or https).
        pinned: the file's SHA-256 in hexadecimal, if it is known.
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
    by_hand = f"put it at {path}{f', {by_hand}' if by_hand else ''}"
    if not path.is_file():
        if store.offline:
            raise DataMissing(
                f"{parts[0]}: {parts[-1]} is not there, and offline nothing is fetched. It comes from {url}; {by_hand}"
            )
        _fetch_locked(store, parts[0], path, url, pinned, by_hand)
    return path


def expect(name: str, file: Path | str, content: bytes, pinned: str) -> None:
    """Raise DataError unless the SHA-256 of a file's content is the pinned one."""
    found = hashlib.sha256(content).hexdigest()
    if found != pinned:
        raise _wrong_sum(name, file, found, pinned, "Delete the file and get it anew")


def _fetch_locked(store: Store, name: str, path: Path, url: str, pinned: str | None, by_hand: str) -> None:
    import filelock

    unfinished = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(path.with_name(f"{path.name}.lock")):
            if path.is_file():  # another process downloaded it while this one waited
                return
            try:
                fault = _download(url, unfinished)
                if fault is not None:
                    raise DataMissing(
                        f"{name}: {path.name} could not be fetched from {url}: {fault}. Try again, or {by_hand}"
                    )
                if pinned is not None and (found := sha256(unfinished)) != pinned:
                    raise _wrong_sum(name, url, found, pinned, "Nothing was kept; try again")
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


def _wrong_sum(name: str, file: Path | str, found: str, pinned: str, way_out: str) -> DataError:
    return DataError(f"{name}: {file}: the file's SHA-256 is {found}, the right one is {pinned}. {way_out}")
