"""Bring your own table: the columns of a .csv file, row by row as vectors or in windows as sequences."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np

from harness.core.errors import DataError, DataMissing
from harness.core.settings import NewSplit
from harness.datasets._signals.windows import (
    Stretch,
    described_ring,
    fill_windows,
    samples,
    split_ring,
    starts,
    stretches_of,
)
from harness.datasets._store.selection import (
    HELD_OUT_PART,
    SEED,
    SPLIT_NAMES,
    SPLITS,
    seeded_order,
    share_out,
    split_classes,
    split_groups,
)
from harness.datasets._store.store import Store, Writer
from harness.datasets._values.column_options import CsvOptions
from harness.datasets._values.encoding import Encoding, choose_encoding
from harness.datasets._values.lattice import EXACT
from harness.datasets._values.stated_noise import noise_text, written_digits
from harness.datasets._values.survey import Survey
from harness.datasets._values.tables import Column, Table, proposed_options, read_table, remarks_on_columns
from harness.datasets._values.user_files import FILES, file_splits, stated_split_fault
from harness.datasets._values.widths import LAST_DIGIT
from harness.datasets.base import Dataset, DatasetInfo, Splits

DRIFT = 6  # standard errors between the means of train and test that no shuffled rows have

SUFFIXES = {".csv", ".tsv", ".txt", ".data"}  # of files that `init` takes for tables


class CsvColumns(Dataset, name="csv"):
    """Columns of a user-supplied .csv file."""

    info = DatasetInfo(
        title="Your own table, from a .csv file",
        kind="sequence",
        what=(
            "the columns that you name, or all columns of numbers. Each row is an event, a vector (D, 1), or windows "
            "of `length` rows are events (C, L). Rows are taken to be in the order of time: train comes first and test "
            "last, and no window crosses from one into another; shuffle: true is for vectors in any order. Every cell "
            "of these columns must be a finite number; a wrong one is named by line and column. Values on a lattice, "
            "such as whole numbers or values of three decimals, become whole numbers by a step that is stated or found "
            "for each column"
        ),
        size="the file's",
        licence="the file's",
        source="the file that the option `file` names",
        how_to_get="put the file beside the suite or into the data root; options: {file: mine.csv}",
    )
    on_disk = True
    paths = FILES
    options_model = CsvOptions

    def propose(self, path: Path) -> dict[str, Any] | None:
        """Return the options of a text file with numbers in columns."""
        if not path.is_file() or not SUFFIXES & {*path.suffixes}:
            return None
        return {"file": str(path), **proposed_options(path)}

    def located(self, options: Mapping[str, Any], folder: Path | None, root: Path | None = None) -> dict[str, Any]:
        """Return the options with the place of the file, and all its columns of numbers unless they name some."""
        placed = super().located(options, folder)
        if self.option_errors(placed) or (chosen := cast(CsvOptions, self.parse(placed))).columns is not None:
            return placed
        with contextlib.suppress(DataMissing):  # which `shape` reports
            path = Store(root, Path()).find(self.name, chosen.file, "")
            try:
                facts = path.stat()
                placed["columns"] = list(_columns(path, chosen, (facts.st_size, facts.st_mtime_ns)))
            except OSError as error:
                raise DataError(f"csv: {path}: cannot be read ({error.strerror or error})") from error
        return placed

    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return (columns, length)."""
        chosen = cast(CsvOptions, self.parse(options))
        return (chosen.count, chosen.length)

    def channels(self, options: Mapping[str, Any]) -> Sequence[str]:
        """Return the names of the columns, where the options have them."""
        columns = cast(CsvOptions, self.parse(options)).columns
        return tuple(map(_label, columns)) if isinstance(columns, tuple) else ()

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, mapped from the cache."""
        chosen = cast(CsvOptions, self.parse(options))
        self.shape(options)  # the columns are known
        return self._splits(store, chosen, None)

    def resplit(self, store: Store, options: Mapping[str, Any], new: NewSplit) -> Splits:
        """Return a new split: groups or classes drawn anew, vectors pooled, or the rows closed to a ring and rotated.

        The number of rows of an event is left out between the splits.
        """
        chosen = cast(CsvOptions, self.parse(options))
        if chosen.shuffle or chosen.states_split:
            return super().resplit(store, options, new)
        return self._splits(store, chosen, new)

    def split_fault(self, options: Mapping[str, Any], keep_test: bool = False) -> str | None:
        """Return why a split that the file states is not drawn anew: test is kept, and windows may overlap."""
        chosen = cast(CsvOptions, self.parse(options))
        if not chosen.states_split:
            return None
        return stated_split_fault(self.name, chosen.file, chosen.length == 1, keep_test)

    def _splits(self, store: Store, chosen: CsvOptions, new: NewSplit | None) -> Splits:
        def build(paths: Sequence[Path], writer: Writer) -> None:
            _write(_read_rows(paths, chosen), chosen, writer, new)

        return file_splits(store, self.name, chosen, build, new)


def _label(column: Column) -> str:
    return column if isinstance(column, str) else f"column {column}"


@dataclass(frozen=True)
class Rows:
    """The rows of a file, encoded."""

    name: str  # begins messages
    values: np.ndarray  # (rows, columns)
    whole: np.ndarray  # of each row whether it has no missing cell, (rows,)
    marks: np.ndarray  # of each row the number of its group or class, or the place of its split in SPLITS, (rows,)
    breaks: np.ndarray  # of each row whether it is no neighbour in time of the one before, (rows,)
    labels: list[str]  # the columns
    encoding: Encoding
    left_out: list[str]  # notes on the columns, with those that are not used
    warnings: list[str]


def _table(path: Path, chosen: CsvOptions) -> Table:
    missing = chosen.missing if isinstance(chosen.missing, tuple) else ()
    return read_table(f"csv: {path}", path, chosen.header, chosen.separator, missing)


@lru_cache(maxsize=16)
def _columns(path: Path, chosen: CsvOptions, stamp: tuple[int, int]) -> tuple[Column, ...]:
    """Return all columns of numbers of a file of this size and time."""
    table = _table(path, chosen)
    places = table.numeric(_others(table, chosen))
    return tuple(table.names[place] if chosen.header else place + 1 for place in places)


def _others(table: Table, chosen: CsvOptions) -> dict[int, str]:
    """Return the places of the columns that are used for the split alone, with the options that name them."""
    named = {name: getattr(chosen, name) for name in ("groups", "split", "stratify", "time")}
    return {table.place(column, name): name for name, column in named.items() if column is not None}


def _read_rows(paths: Sequence[Path], chosen: CsvOptions) -> Rows:
    """Return the rows of all files: of train, perhaps validation, and test."""
    tables = [_table(path, chosen) for path in paths]
    table, columns = tables[0], chosen.columns
    name = table.name
    if isinstance(columns, int):
        if columns != len(table.names):
            hint = "name some, or leave `columns` out to use those of numbers"
            raise DataError(f"{name}: has {len(table.names)} columns, and columns = {columns} takes all; {hint}")
        columns = tuple(range(1, columns + 1))
    drop = chosen.missing != "refuse"
    parts = [each.numbers([each.place(column) for column in columns or ()], drop) for each in tables]
    places = [table.place(column) for column in columns or ()]
    values = np.concatenate(parts)
    marks = np.zeros(len(values), np.int64)
    if chosen.test_file is not None:
        marks = np.repeat([0, 1, 2] if len(parts) > 2 else [0, 2], [len(part) for part in parts])
    elif chosen.marking is not None:
        marks = _marks(table, *chosen.marking)
    breaks = np.zeros(len(values), bool)
    if chosen.time is not None:
        breaks = np.concatenate([_breaks(each, each.place(chosen.time, "time")) for each in tables])
    there = np.isfinite(values).all(axis=1)
    if not there.any():
        raise DataError(f"{name}: each of its {len(values):,} rows has a missing cell; fill them")
    if there.all() and np.abs(values).max() < EXACT and (values == np.round(values)).all():
        values = values.astype(np.int64)
    survey = Survey(values.shape[1], values.dtype, int(there.sum()))
    survey.add(values[there][:, :, None])
    labels = [table.label(place) for place in places]
    written = tuple(map(written_digits, values[there].T)) if chosen.noise == LAST_DIGIT else None
    encoding = choose_encoding(name, survey, "sequence", chosen.step, None, chosen.noise, labels, written)
    rows = np.zeros(values.shape, encoding.dtype)
    rows[there] = encoding.encode(values[there][:, :, None], "rows", 0)[..., 0]
    noted, warnings = remarks_on_columns(values[there], labels)
    if chosen.length > 1 and chosen.groups is None and (of_one := table.blocks()):
        one = table.label(of_one[0])
        warnings.append(f"windows join rows of different {one}; say groups: {one}, unless these belong together")
    notes = [*table.left_out(places, _others(table, chosen)), *noted]
    return Rows(name, rows, there, marks, breaks, labels, encoding, notes, warnings)


def _marks(table: Table, option: str, column: Column) -> np.ndarray:
    """Return the number of each row's group or class, or the place of its split in SPLITS."""
    cells = table.frame[table.place(column, option)]
    numbers, values = cells.factorize(sort=option == "split")
    if lacking := int((numbers < 0).sum()):
        raise DataError(f"{table.name}: {lacking:,} rows have no value of {_label(column)}; fill it in")
    if option != "split":
        return numbers
    if cells.dtype.kind in "iuf":
        if len(values) < len(SPLITS):
            raise DataError(f"{table.name}: {_label(column)} has {len(values)} folds; a split needs three")
        return np.maximum(numbers - (len(values) - len(SPLITS)), 0)
    names = [SPLIT_NAMES.get(str(value).strip().lower()) for value in values]
    if None in names or not {"train", "test"} <= {*names}:
        raise DataError(
            f"{table.name}: {_label(column)} has {', '.join(map(repr, map(str, values[:5])))}; it must have train, "
            "test and perhaps validation, or the numbers of folds"
        )
    return np.array([SPLITS.index(str(name)) for name in names])[numbers]


def _breaks(table: Table, place: int) -> np.ndarray:
    """Return of each row whether its time is not one usual step after that of the row before."""
    import pandas as pd

    cells = table.frame[place]
    times = cells if cells.dtype.kind in "iuf" else pd.to_datetime(cells, errors="coerce", format="mixed")
    if (wrong := times.isna()).any():
        row = int(wrong.argmax())
        raise DataError(f"{table.name}: row {row + 1} has no time in {table.label(place)}: {cells[row]!r}")
    steps = np.diff(times.to_numpy().astype(np.float64))
    rising = steps[steps > 0]
    usual = float(np.median(rising)) if len(rising) else 0.0
    return np.concatenate([[False], (steps <= 0) | (steps > 1.5 * usual)])


def _write(rows: Rows, chosen: CsvOptions, writer: Writer, new: NewSplit | None) -> None:
    """Cut and write the events of each split."""
    dropped = f"dropped: {(~rows.whole).sum():,} of {len(rows.whole):,} rows with a missing cell"
    notes, warnings = [dropped] * (not rows.whole.all()) + rows.left_out, list(rows.warnings)
    if chosen.length == 1 and not rows.whole.all():
        kept = {name: getattr(rows, name)[rows.whole] for name in ("values", "marks", "breaks", "whole")}
        rows = replace(rows, **kept)
    if chosen.shuffle:
        rows = replace(rows, values=rows.values[seeded_order(len(rows.values))])
    ordered = chosen.marking is None and not chosen.states_split
    runs: Mapping[str, Sequence[Stretch]]
    if ordered and new is not None:
        runs, share = _ring(rows, chosen, new)
        test_share: float | None = share
        gap = "one row" if chosen.length == 1 else f"{chosen.length} rows"
        order = f"{described_ring(new)}, with {gap} between the splits"
    else:
        split, test_share, order = _split(rows, chosen, new)
        runs = _of_splits(rows, split, chosen)
        if ordered and not chosen.shuffle and chosen.length == 1:
            warnings += _drift(rows, split)
    for name, stretches in runs.items():
        stride = chosen.stride if name == "train" and chosen.stride is not None else chosen.length
        cuts = [(stretch.values, starts(stretch, chosen.length, stride)) for stretch in stretches]
        if not (count := sum(len(begins) for _, begins in cuts)):
            raise DataError(
                f"{rows.name}: {name} has {samples(stretches)} of {len(rows.values)} rows, and not {chosen.length} in "
                f"a row for a window ({order}); take a shorter length or other shares"
            )
        target = writer.create(name, (count, rows.values.shape[1], chosen.length), rows.values.dtype)
        for part, begins in cuts:
            if len(begins):
                fill_windows(target[: len(begins)], part, begins)
                target = target[len(begins) :]
    events = "vectors" if chosen.length == 1 else f"windows of {chosen.length} rows"
    shares = "" if chosen.states_split else f"the shares {', '.join(map(str, chosen.shares))} of "
    writer.notes = {
        "levels": None,
        **rows.encoding.facts("sequence"),
        "left_out": notes,
        "warnings": warnings,
        "test_share": test_share,
        "description": (
            f"{Path(chosen.file).name}: {events} of {rows.values.shape[1]} columns; train, validation and test are "
            f"{shares}{len(rows.values)} rows, {order}{noise_text(rows.encoding)}"
        ),
    }


def _split(rows: Rows, chosen: CsvOptions, new: NewSplit | None) -> tuple[np.ndarray, float | None, str]:
    """Return the place of each row's split in SPLITS, or -1, (rows,); the share of test of a new split; a phrase."""
    if chosen.states_split:
        split = rows.marks.copy()
        how = f"split by {_label(chosen.split) if chosen.split is not None else 'file'}"
        if 1 not in split:
            train = np.flatnonzero(split == 0)
            order = train[seeded_order(len(train))] if chosen.length == 1 else train[::-1]
            split[order[: max(1, len(train) // HELD_OUT_PART)]] = 1
            how += ", validation from train"
        return split, None, how
    if chosen.marking is None:
        counts = share_out(rows.name, len(rows.values), chosen.shares)
        split = np.full(len(rows.values), -1)
        split[: sum(counts)] = np.repeat(range(len(SPLITS)), counts)
        return split, None, f"by seed {SEED}" if chosen.shuffle else "in order"
    option, column = chosen.marking
    if option == "stratify":
        split, share, text = split_classes(rows.marks, chosen.shares, new)
    else:
        split, share, text = split_groups(rows.name, rows.marks, chosen.shares, new)
    return split, share, f"{text} of {_label(column)}"


def _of_splits(rows: Rows, split: np.ndarray, chosen: CsvOptions) -> dict[str, list[Stretch]]:
    """Return the runs of rows of each split, for vectors one.

    A run ends at a missing cell, where the split or the group is another, and at a hole in time.
    """
    if chosen.length == 1:
        return {name: [Stretch(0, rows.values[split == place].T)] for place, name in enumerate(SPLITS)}
    runs: dict[str, list[Stretch]] = {name: [] for name in SPLITS}
    for run in _runs(rows, np.diff(rows.marks) | np.diff(split)):
        if split[run.start] >= 0:
            runs[SPLITS[split[run.start]]].append(run)
    return runs


def _runs(rows: Rows, changes: np.ndarray) -> Iterator[Stretch]:
    """Yield the runs of rows without a missing cell, a change to the next row, (rows - 1,), or a hole in time."""
    joints = np.flatnonzero(changes.astype(bool) | rows.breaks[1:]) + 1
    for first, last in pairwise([0, *joints.tolist(), len(rows.values)]):
        yield from stretches_of(rows.values[first:last].T, rows.whole[first:last], first)


def _drift(rows: Rows, split: np.ndarray) -> list[str]:
    """Return a warning of the column whose mean differs most between train and test, if shuffled ones would not."""
    train, test = (rows.values[split == place].astype(np.float64) for place in (0, 2))
    deviation = rows.values.std(axis=0, dtype=np.float64)
    apart = np.abs(test.mean(axis=0) - train.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    errors = apart / math.sqrt(1 / len(train) + 1 / len(test))
    most = int(errors.argmax())
    if errors[most] < DRIFT:
        return []
    return [
        f"the rows are in an order that matters: the mean of {rows.labels[most]} in test is {apart[most]:.2g} standard "
        f"deviations off that in train, {errors[most]:.0f} standard errors of shuffled rows; say shuffle: true, unless "
        "the order is that of time"
    ]


def _ring(rows: Rows, chosen: CsvOptions, new: NewSplit) -> tuple[dict[str, tuple[Stretch, ...]], float]:
    """Return the runs of rows of each new split, and the share of test."""
    used = sum(share_out(rows.name, len(rows.values), chosen.shares))
    rows = replace(rows, **{key: getattr(rows, key)[:used] for key in ("values", "whole", "breaks")})
    _, validation, test = (share / math.fsum(chosen.shares) for share in chosen.shares)
    return split_ring(list(_runs(rows, np.zeros(used - 1, bool))), validation, test, chosen.length, new)
