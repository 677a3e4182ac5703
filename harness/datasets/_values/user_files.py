"""The files of users: the splits of their rows or events, and prepared arrays of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from harness.core.settings import NewSplit
from harness.datasets._signals.windows import Stretch, described_ring, split_in_time
from harness.datasets._store.selection import SEED, SHARES, SPLITS, Division, by_shares, split_classes, split_groups
from harness.datasets._store.store import Store, Writer, prepare, split_key
from harness.datasets._values.file_options import FileOptions
from harness.datasets.base import Splits

VERSION = 7  # of the prepared arrays
FILES = ("file", "validation_file", "test_file")
"""The options that name files, in the order in which they are read."""


def file_splits(
    store: Store,
    name: str,
    options: FileOptions,
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


def rotate(runs: Sequence[np.ndarray], validation: float, test: float, gap: int, new: NewSplit) -> Division:
    """Draw a new split of rows in time, whose numbers are in `runs` without a hole; see `split_in_time`."""
    stretches = [Stretch(int(run[0]), run[None]) for run in runs]
    drawn, share = split_in_time(stretches, validation, test, gap, new)
    none = np.zeros(0, int)
    numbers = {part: np.concatenate([none, *(run.values[0] for run in of_part)]) for part, of_part in drawn.items()}
    return numbers, share, described_ring(new)


def divide(
    name: str, count: int, marks: np.ndarray | None, options: FileOptions, shuffled: bool, new: NewSplit | None
) -> Division:
    """Draw the splits of `count` rows: of whole groups, of equal shares of classes, or in order.

    Args:
        name: begins messages.
        count: number of rows.
        marks: the number of each row's group or class, 0, 1, ..., if the options ask for them.
        options: those of the files.
        shuffled: whether rows are shuffled by a fixed seed before.
        new: a new split of groups or classes.

    Raises:
        DataError: a split would have no row.
    """
    shares = options.shares or SHARES
    if marks is None:
        how = f"{', '.join(map(str, shares))}, {f'by seed {SEED}' if shuffled else 'in order'}"
        return by_shares(name, count, shares, shuffled), None, f"train, validation and test are the shares {how}"
    label = options.groups or options.stratify
    split, text = split_groups(name, marks, shares, new) if options.groups else split_classes(marks, shares, new)
    numbers = {part: np.flatnonzero(split == place) for place, part in enumerate(SPLITS)}
    name = label if isinstance(label, str) else f"column {label}"
    return numbers, len(numbers["test"]) / count, f"train, validation and test are {text} of {name}"
