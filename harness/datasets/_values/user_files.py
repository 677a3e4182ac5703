"""Read the files of users: the splits of prepared arrays, and why a split that files state is not drawn anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from harness.core.settings import NewSplit, Settings
from harness.datasets._store.store import Store, Writer, prepare, split_key
from harness.datasets.base import Splits

VERSION = 6  # of the prepared arrays
FILES = ("file", "validation_file", "test_file")
"""The options that name files, in the order in which they are read."""


def file_splits(
    store: Store,
    name: str,
    options: Settings,
    build: Callable[[Sequence[Path], Writer], None],
    new: NewSplit | None = None,
) -> Splits:
    """Return the splits of the files that the options name, prepared by `build(paths, writer)` on the first call."""
    files = {option: file for option in FILES if (file := getattr(options, option)) is not None}
    paths = [
        store.find(name, file, f"it is the option `{option}`: beside the suite, below the data root or absolute")
        for option, file in files.items()
    ]
    key = {"version": VERSION, **options.model_dump(mode="json"), **split_key(new)}
    return Splits.of(prepare(store, name, key, paths, lambda writer: build(paths, writer)))


def stated_split_fault(name: str, file: str, exchangeable: bool, keep_test: bool) -> str | None:
    """Return why a split that files state is not drawn anew; None if test is kept and the events are exchangeable."""
    if keep_test and exchangeable:
        return None
    hint = ", or say keep_test: true, which draws validation anew from train" * exchangeable
    return f"{name}: {file} states its split; leave `split` out of repetitions.vary{hint}"
