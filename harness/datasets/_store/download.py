"""Download files into the cache, once and atomically; a file whose checksum is pinned is compared with it.

A loader compares pinned files again when it reads them. A file without a pinned checksum has no other check
than those of its format; a change of it changes the checksum of the prepared arrays, and with it the trials.
"""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath

from harness.core.errors import DataError, DataMissing
from harness.datasets._store.store import Store, sha256, writing

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
    """
    path = store.cache / "downloads" / name
    if path.is_file():
        return path
    dataset = PurePosixPath(name).parts[0]
    hint = ", ".join([f"put it at {path}", *[by_hand] * bool(by_hand)])
    if store.offline:
        raise DataMissing(
            f"{dataset}: {path.name} is not there, and offline nothing is fetched. It comes from {url}; {hint}"
        )
    import filelock
    import pooch
    import requests

    unfinished = path.with_name(f"{path.name}.part")
    with writing(store):
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(path.with_name(f"{path.name}.lock")):
            if path.is_file():  # another process downloaded it while this one waited
                return path
            print(f"fetching {url}", file=sys.stderr, flush=True)
            try:
                pooch.HTTPDownloader(timeout=TIMEOUT)(url, str(unfinished), None)
            except requests.RequestException as error:  # an OSError
                unfinished.unlink(missing_ok=True)
                reason = f"{path.name} could not be fetched from {url}: {' '.join(str(error).split())}"
                raise DataMissing(f"{dataset}: {reason}. Try again, or {hint}") from error
            if pinned is not None and (actual := sha256(unfinished)) != pinned:
                unfinished.unlink()
                raise wrong_sum(dataset, url, actual, pinned, "Nothing was kept; try again")
            unfinished.replace(path)
    return path


def wrong_sum(name: str, place: Path | str, actual: str, pinned: str, hint: str) -> DataError:
    """Return the error that a file has another checksum than the pinned one."""
    return DataError(f"{name}: {place}: the file's SHA-256 is {actual}, the right one is {pinned}. {hint}")
