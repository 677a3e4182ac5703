"""Bring your own table: the columns of a .csv file, row by row as vectors or in windows as sequences."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import DataError, DataMissing
from harness.core.settings import NewSplit
from harness.datasets._signals.windows import Stretch, fill_windows, samples, starts
from harness.datasets._store.selection import SHARES, SPLIT_NAMES, SPLITS, divide_as_stated, share_out
from harness.datasets._store.store import Store, Writer
from harness.datasets._values.encoding import Encoding, choose_encoding, written_digits
from harness.datasets._values.file_options import COLUMNS, LAST_DIGIT, CsvOptions
from harness.datasets._values.lattice import EXACT, Survey
from harness.datasets._values.tables import Column, TextTable, proposed_options, read_table, remarks_on_columns
from harness.datasets._values.user_files import FILES, divide, file_splits, rotate, stated_split_fault
from harness.datasets.base import Dataset, DatasetInfo, Splits

DRIFT = 6  # standard errors between the means of train and test that no shuffled rows have
SUFFIXES = {".csv", ".tsv", ".txt", ".data", ".dat"}  # of files that `init` takes for tables


class CsvColumns(Dataset, name="csv"):
    """Columns of a user-supplied .csv file."""

    info = DatasetInfo(
        title="Your own table, from a .csv file",
        kind="sequence",
        what=(
            "rows as vectors (D, 1), or windows of `length` rows (C, L), of the columns that you name or of all "
            "columns of numbers. Rows are taken to be in the order of time, unless shuffle: true. Values on a "
            "lattice become whole numbers by a step that is stated or found for each column"
        ),
        source="the file that the option `file` names",
        how_to_get="put the file beside the suite or into the data root; options: {file: mine.csv}",
    )
    on_disk = True
    paths = FILES
    options_model = CsvOptions

    def propose(self, path: Path) -> dict[str, Any] | None:
        """Return the options of a text file with numbers in columns."""
        recorded = path.suffix == ".dat" and path.with_suffix(".hea").exists()
        if recorded or not path.is_file() or not SUFFIXES & {*path.suffixes}:
            return None
        return {"file": str(path), **proposed_options(path)}

    def located(self, options: Mapping[str, Any], folder: Path | None, root: Path | None = None) -> dict[str, Any]:
        """Return the options with the place of the file, and all its columns of numbers unless they name some."""
        placed = super().located(options, folder)
        if self.option_errors(placed) or (chosen := self.parse(placed)).columns is not None:
            return placed
        with contextlib.suppress(DataMissing):  # which `shape` reports
            path = Store(root, Path()).find(self.name, chosen.file, "")
            try:
                facts = path.stat()
                placed["columns"] = list(_columns(path, chosen, (facts.st_size, facts.st_mtime_ns)))
            except OSError as error:
                raise DataError(f"csv: {path}: cannot be read ({error.strerror or error})") from error
        return placed

    def load(self, store: Store, options: Mapping[str, Any], new: NewSplit | None = None) -> Splits:
        """Return the splits, mapped from the cache.

        For a new split groups or classes are drawn anew, vectors pooled, or the rows closed to a ring and rotated; then
        the number of rows of an event is left out between the splits.
        """
        chosen: CsvOptions = self.parse(options)
        self.shape(options)  # the columns are known
        if new is not None and (chosen.shuffle or _is_stated(chosen)):
            return self.load(store, options).redrawn(new)
        return file_splits(store, self.name, chosen, partial(_build, chosen, new), new)

    def split_fault(self, options: Mapping[str, Any], keep_test: bool = False) -> str | None:
        """Return why a split that the file states is not drawn anew: test is kept, and windows may overlap."""
        chosen: CsvOptions = self.parse(options)
        if not _is_stated(chosen):
            return None
        return stated_split_fault(self.name, chosen.file, chosen.length == 1, keep_test)


def _is_stated(chosen: CsvOptions) -> bool:
    """Return whether the file, or several files, state the split."""
    return chosen.split is not None or chosen.test_file is not None


@dataclass(frozen=True)
class Rows:
    """The rows of a file, encoded."""

    name: str  # begins messages
    values: np.ndarray  # (rows, columns)
    whole: np.ndarray  # of each row whether it has no missing cell, (rows,)
    marks: np.ndarray | None  # of each row the number of its group or class, or the place of its split in SPLITS
    joints: np.ndarray  # of each row whether no window may join it to the one before, (rows,)
    labels: list[str]  # the columns
    encoding: Encoding
    notes: list[str]  # on the columns, with those that are not used
    warnings: list[str]


def _table(path: Path, chosen: CsvOptions) -> TextTable:
    missing = chosen.missing if isinstance(chosen.missing, tuple) else ()
    return read_table(f"csv: {path}", path, chosen.header, chosen.separator, missing)


@lru_cache(maxsize=16)
def _columns(path: Path, chosen: CsvOptions, stamp: tuple[int, int]) -> tuple[Column, ...]:
    table = _table(path, chosen)
    places = table.numeric(_others(table, chosen))
    return tuple(table.names[place] if chosen.header else place + 1 for place in places)


def _others(table: TextTable, chosen: CsvOptions) -> dict[int, str]:
    """Return the places of the columns that are used for the split alone, with the options that name them."""
    named = {name: getattr(chosen, name) for name in COLUMNS}
    return {table.place(column, name): name for name, column in named.items() if column is not None}


def _read_rows(paths: Sequence[Path], chosen: CsvOptions) -> Rows:
    tables = [_table(path, chosen) for path in paths]
    table, columns = tables[0], chosen.columns
    if isinstance(columns, int):
        if columns != len(table.names):
            hint = "name some, or leave `columns` out to use those of numbers"
            raise DataError(f"{table.name}: has {len(table.names)} columns, and columns = {columns} takes all; {hint}")
        columns = tuple(range(1, columns + 1))
    drop = chosen.missing != "refuse"
    parts = [each.numbers([each.place(column) for column in columns or ()], drop) for each in tables]
    values, marks = np.concatenate(parts), None
    if len(parts) > 1:
        marks = np.repeat([0, 1, 2] if len(parts) > 2 else [0, 2], [len(part) for part in parts])
    elif chosen.marking is not None:
        marks = _marks(table, *chosen.marking)
    whole = np.isfinite(values).all(axis=1)
    if not whole.any():
        raise DataError(f"{table.name}: each of its {len(values):,} rows has a missing cell; fill them")
    joints = np.zeros(len(values), bool) if marks is None else np.diff(marks, prepend=marks[0]) != 0
    if chosen.time is not None:
        joints |= np.concatenate([_breaks(each, each.place(chosen.time, "time")) for each in tables])
    joints[1:] |= ~(whole[1:] & whole[:-1])
    there = values[whole]
    if np.abs(there).max() < EXACT and whole.all() and (there == np.round(there)).all():
        there = there.astype(np.int64)
    places = [table.place(column) for column in columns or ()]
    labels = [table.label(place) for place in places]
    written = tuple(map(written_digits, there.T)) if chosen.noise == LAST_DIGIT else None
    survey = Survey.of(there[:, :, None])
    encoding = choose_encoding(table.name, survey, "sequence", chosen.step, chosen.noise, labels, written)
    rows = np.zeros(values.shape, encoding.dtype)
    rows[whole] = encoding.encode(there[:, :, None], np.flatnonzero(whole))[..., 0]
    noted, warnings = remarks_on_columns(there, labels)
    if chosen.length > 1 and chosen.groups is None and (of_one := table.blocks()):
        one = table.label(of_one[0])
        warnings.append(f"windows join rows of different {one}; say groups: {one}, unless these belong together")
    others = _others(table, chosen)
    stated = [table.label(place) for place in table.splits() if place not in others]
    if stated and not _is_stated(chosen):
        warnings.append(f"{stated[0]} seems to state each row's split, which is drawn anew; say split: {stated[0]}")
    dropped = [f"dropped: {(~whole).sum():,} of {len(whole):,} rows with a missing cell"] * (not whole.all())
    notes = [*dropped, *table.left_out(places, others), *noted]
    return Rows(table.name, rows, whole, marks, joints, labels, encoding, notes, warnings)


def _marks(table: TextTable, option: str, column: Column) -> np.ndarray:
    """Return the number of each row's group or class, or the place of its split in SPLITS."""
    place = table.place(column, option)
    cells, label = table.frame[place], table.label(place)
    numbers, values = cells.factorize(sort=option == "split")
    if lacking := int((numbers < 0).sum()):
        raise DataError(f"{table.name}: {lacking:,} rows have no value of {label}; fill it in")
    if option != "split":
        return numbers
    if cells.dtype.kind in "iuf":
        if len(values) < len(SPLITS):
            raise DataError(f"{table.name}: {label} has {len(values)} folds; a split needs three")
        return np.maximum(numbers - (len(values) - len(SPLITS)), 0)
    names = [SPLIT_NAMES.get(str(value).strip().lower()) for value in values]
    if None in names or not {"train", "test"} <= {*names}:
        raise DataError(
            f"{table.name}: {label} has {', '.join(map(repr, map(str, values[:5])))}; it must have train, "
            "test and perhaps validation, or the numbers of folds"
        )
    return np.array([SPLITS.index(str(name)) for name in names])[numbers]


def _breaks(table: TextTable, place: int) -> np.ndarray:
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


def _build(chosen: CsvOptions, new: NewSplit | None, paths: Sequence[Path], writer: Writer) -> None:
    """Read the files, and cut and write the events of each split."""
    rows = _read_rows(paths, chosen)
    # Vectors are taken from the rows without a missing cell, and windows from all, in which such a row is a joint.
    used = np.flatnonzero(rows.whole) if chosen.length == 1 else np.arange(len(rows.values))
    marks = None if rows.marks is None else rows.marks[used]
    if marks is None and new is not None:
        used = used[: sum(share_out(rows.name, len(used), chosen.shares or SHARES))]
        runs = [np.arange(len(used))] if chosen.length == 1 else _runs(rows, used)
        shares = [share / math.fsum(chosen.shares or SHARES) for share in chosen.shares or SHARES]
        numbers, test_share, how = rotate(runs, shares[1], shares[2], chosen.length, new)
        how += f", with {'one row' if chosen.length == 1 else f'{chosen.length} rows'} between the splits"
    elif _is_stated(chosen) and marks is not None:
        numbers, test_share, how = divide_as_stated(rows.name, marks, chosen.length == 1)
    else:
        numbers, test_share, how = divide(rows.name, len(used), marks, chosen, bool(chosen.shuffle), new)
    warnings = list(rows.warnings)
    if marks is None and new is None and not chosen.shuffle and chosen.length == 1:
        warnings += _drift(rows, *(rows.values[used[numbers[name]]] for name in ("train", "test")))
    for name, part in numbers.items():
        stride = chosen.stride if name == "train" and chosen.stride is not None else chosen.length
        runs = [used[part]] if chosen.length == 1 else _runs(rows, part)
        stretches = [Stretch(0, rows.values[run].T) for run in runs]
        cuts = [(stretch.values, starts(stretch, chosen.length, stride)) for stretch in stretches]
        if not (count := sum(len(begins) for _, begins in cuts)):
            raise DataError(
                f"{rows.name}: {name} has {samples(stretches)} of {len(used)} rows, and not {chosen.length} in "
                f"a row for a window ({how}); take a shorter length or other shares"
            )
        fill_windows(writer.create(name, (count, rows.values.shape[1], chosen.length), rows.values.dtype), cuts)
    events = "vectors" if chosen.length == 1 else f"windows of {chosen.length} rows"
    writer.notes = {
        "levels": None,
        **rows.encoding.facts("sequence"),
        "left_out": rows.notes,
        "warnings": warnings,
        "test_share": test_share,
        "description": (
            f"{Path(chosen.file).name}: {events} of {rows.values.shape[1]} columns, {len(used)} rows; {how}"
            f"{rows.encoding.noise_text}"
        ),
    }


def _runs(rows: Rows, numbers: np.ndarray) -> list[np.ndarray]:
    """Return the numbers of the rows of each run of neighbours without a joint among the rows with these numbers."""
    numbers = numbers[rows.whole[numbers]]
    ends = np.flatnonzero((np.diff(numbers) != 1) | rows.joints[numbers[1:]]) + 1
    return [run for run in np.split(numbers, ends) if len(run)]


def _drift(rows: Rows, train: np.ndarray, test: np.ndarray) -> list[str]:
    """Return a warning of the column whose mean differs most between train and test, if shuffled ones would not."""
    deviation = rows.values[rows.whole].std(axis=0, dtype=np.float64)
    means = [part.mean(axis=0, dtype=np.float64) for part in (train, test)]
    apart = np.abs(means[1] - means[0]) / np.where(deviation > 0, deviation, 1)
    errors = apart / math.sqrt(1 / len(train) + 1 / len(test))
    most = int(errors.argmax())
    if errors[most] < DRIFT:
        return []
    return [
        f"the rows are in an order that matters: the mean of {rows.labels[most]} in test is {apart[most]:.2g} standard "
        f"deviations off that in train, {errors[most]:.0f} standard errors of shuffled rows; say shuffle: true, unless "
        "the order is that of time"
    ]
