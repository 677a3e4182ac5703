"""The locations of data sets: a read-only data root, and a cache of downloads and of arrays prepared from both.

A loader reads its source once, checks it, and writes integer arrays to the cache; trials map those into memory,
read-only, so that a warm start costs milliseconds and several trials share one copy. A loader compares its source with
a pinned checksum, if it has one. Others are checked by their format alone; a change of one changes the checksum of the
prepared arrays, and with it the trials.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from harness.core.errors import DataError, DataMissing
from harness.core.files import DATA, RECORD, open_file, read_text
from harness.core.settings import NewSplit

META = "meta.json"
TIMEOUT = 30  # seconds without data after which a download fails

Build = Callable[["Writer"], None]
"""Function that reads the sources, checks them and writes the arrays."""


@dataclass(frozen=True)
class Store:
    """The folders that loaders read and write."""

    root: Path | None  # the user's data root, read-only; None without one
    cache: Path  # prepared arrays and downloads
    offline: bool = False  # downloads are forbidden

    @classmethod
    def at(cls, root: Path | None, offline: bool = False) -> Store:
        """Return this user's store: $INVERTBENCH_CACHE, else $XDG_CACHE_HOME/invertbench, else ~/.cache/invertbench."""
        common = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        cache = os.environ.get("INVERTBENCH_CACHE") or Path(common, "invertbench")
        return cls(root, Path(cache).absolute(), offline)

    def find(self, name: str, relative: str, hint: str) -> Path:
        """Return a file or folder of the data root, or raise DataMissing that names it and, by `hint`, the remedy.

        `name` is that of the data set. `relative` is below the root; an absolute path, and one below the working
        directory that begins with "./", is used unchanged.
        """
        placed = Path(relative).is_absolute() or relative.startswith("./")
        if self.root is None and not placed:
            raise DataMissing(
                f"{name}: {relative} is looked for in a data root, and none is named; give --data ROOT or set "
                f"$INVERTBENCH_DATA; {hint}"
            )
        path = Path(relative) if self.root is None or placed else self.root / relative
        try:
            if path.exists():
                return path
        except OSError as error:  # the name is too long for a file, or the folder may not be searched
            raise DataMissing(f"{name}: {path}: cannot be looked up ({error.strerror}); {hint}") from error
        raise DataMissing(f"{name}: {path}: no such file or folder; {hint}")


@dataclass(frozen=True)
class Prepared:
    """One prepared data set in the cache."""

    folder: Path  # holds one .npy file per array, and meta.json, which has key and sources besides
    arrays: Mapping[str, str]  # name -> SHA-256
    notes: Mapping[str, Any]  # of the writer

    def array(self, name: str) -> np.ndarray:
        """Return an array, mapped into memory and read-only."""
        with _undamaged(self.folder):
            return np.load(self.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)

    @property
    def checksum(self) -> str:
        """SHA-256 over the checksums of all arrays: equal for equal data of any origin."""
        return hashlib.sha256(json.dumps(self.arrays, sort_keys=True).encode()).hexdigest()


class Writer:
    """Write the arrays of a loader to `folder`, and facts about them, `notes`, that are kept as JSON."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.folder = folder
        self._store = store
        self.notes: dict[str, Any] = {}

    def create(self, name: str, shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
        """Create an array on disk, to be filled piece by piece, so that its content is never in memory twice."""
        path = self.folder / f"{name}.npy"
        with writing(self._store):
            array = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape, version=(1, 0))
            if hasattr(os, "posix_fallocate"):  # a full disk raises an error here, and would cause a signal later
                with path.open("r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        return array

    def save(self, name: str, values: np.ndarray) -> None:
        """Write a whole array that fits into memory."""
        self.create(name, values.shape, values.dtype)[...] = values


def split_key(new: NewSplit | None) -> dict[str, Any]:
    """Return the entry of the key of prepared arrays for a new split; none for the data set's split."""
    return {} if new is None else {"split": [new.seed, new.keep_test]}


def prepare(store: Store, name: str, key: Mapping[str, Any], sources: Sequence[Path], build: Build) -> Prepared:
    """Return the arrays that `build` makes of `sources`, made once and then read from the cache.

    They are made anew when the key, or the size or time of a source, changes. One process makes them while others wait;
    they appear atomically, so that a folder of the cache is complete.

    Args:
        store: its cache is written.
        name: of the data set, the readable part of the folder's name.
        key: every option that affects the arrays, and a version of the loader, as JSON values.
        sources: the source files, in a fixed order.
        build: makes the arrays.

    Raises:
        DataError: the cache cannot be written, or a source cannot be read.
        Other exceptions of `build` propagate unchanged; the cache is then as before.
    """
    stamps: list[list[str | int]] = []
    with _reading(name):
        for path in sources:
            with open_file(path, DATA) as file:
                facts = os.fstat(file.fileno())
            stamps.append([str(path.absolute()), facts.st_size, facts.st_mtime_ns])
    text = json.dumps({"key": key, "sources": stamps}, sort_keys=True, allow_nan=False)
    folder = store.cache / "prepared" / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    with writing(store):
        if not folder.is_dir():
            import filelock

            folder.parent.mkdir(parents=True, exist_ok=True)
            # Another process may make it while this one waits; the system releases the lock when its holder dies.
            with filelock.FileLock(folder.parent / f"{folder.name}.lock"):
                if not folder.is_dir():
                    _build(store, name, folder, json.loads(text), build)
    with _undamaged(folder):
        meta = json.loads(read_text(folder / META, RECORD))
        return Prepared(folder, dict(meta["arrays"]), dict(meta["notes"]))


def _build(store: Store, name: str, folder: Path, meta: dict[str, Any], build: Build) -> None:
    unfinished = folder.with_name(f".{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)  # of an interrupted process
    unfinished.mkdir()
    try:
        writer = Writer(store, unfinished)
        with _reading(name):
            build(writer)
        meta["arrays"] = {path.stem: sha256(path) for path in unfinished.glob("*.npy")}
        text = json.dumps(meta | {"notes": writer.notes}, indent=1, allow_nan=False, default=astuple)
        (unfinished / META).write_text(text, encoding="utf-8")
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextlib.contextmanager
def writing(store: Store) -> Iterator[None]:
    """Turn an OSError into the error that the cache cannot be written."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{store.cache}: the cache of prepared data cannot be used ({error.strerror or error}); "
            "set $INVERTBENCH_CACHE to a folder that can be written"
        ) from error


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    """Turn an OSError into the error that a source of the data set `name` cannot be read."""
    try:
        yield
    except OSError as error:
        what = f"{error.filename}: " if error.filename else ""
        raise DataError(f"{name}: {what}cannot be read ({error.strerror or error})") from error


@contextlib.contextmanager
def _undamaged(folder: Path) -> Iterator[None]:
    """Turn what an array or a meta.json that was changed raises into the error that names its folder."""
    try:
        yield
    except (OSError, EOFError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{folder}: damaged ({error!r}); remove this folder of the cache") from error


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with open_file(path, DATA) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(store: Store, name: str, url: str, by_hand: str = "") -> Path:
    """Return a file of the cache's downloads, downloaded if it is missing.

    One process downloads while others wait. The file gets its name only when it is complete; the remains of an
    interrupted download are overwritten by the next.

    Args:
        store: its cache is written, unless it is offline.
        name: the data set, a slash, and the file, such as "mimic/3000063/3000063.hea"; the path below the downloads.
        url: the source of the file (http or https).
        by_hand: another way to provide the file, for the message if the download fails; "or put it into ...".

    Raises:
        DataMissing: the file is missing and cannot be downloaded.
        DataError: the cache cannot be written.
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
            unfinished.replace(path)
    return path
