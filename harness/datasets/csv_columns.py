"""Bring your own table: the columns of a .csv file, row by row as vectors or in windows as sequences."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np

from harness.core.errors import DataError, DataMissing
from harness.core.settings import NewSplit
from harness.datasets._signals.wfdb_records import stretches_of
from harness.datasets._signals.windows import described_ring, fill_windows, samples, split_ring, starts
from harness.datasets._store.selection import SEED, SPLITS, seeded_order, share_out, split_groups
from harness.datasets._store.store import Store, Writer, prepare
from harness.datasets._values.column_options import CsvOptions
from harness.datasets._values.encoding import Survey, choose_encoding, written_digits
from harness.datasets._values.lattice import EXACT
from harness.datasets._values.tables import Column, Table, read_table, remarks_on_columns
from harness.datasets._values.user_files import LAST_DIGIT, VERSION, file_splits, noise_text
from harness.datasets.base import Dataset, DatasetInfo, Splits

Cuts = dict[str, list[tuple[np.ndarray, np.ndarray]]]
"""Split -> its runs of rows, (columns, rows), each with the begins of its events."""


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
    paths = ("file",)
    options_model = CsvOptions

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

        def build(path: Path, writer: Writer) -> None:
            _write(_read_rows(path, chosen), chosen, writer, None)

        return file_splits(store, self.name, chosen, "sequence", build)

    def resplit(self, store: Store, options: Mapping[str, Any], new: NewSplit) -> Splits:
        """Return a new split: groups drawn anew, shuffled vectors pooled, or the rows closed to a ring and rotated.

        The number of rows of an event is left out between the splits. The file is parsed once for all new splits.
        """
        chosen = cast(CsvOptions, self.parse(options))
        if chosen.shuffle:
            return super().resplit(store, options, new)

        def build(path: Path, writer: Writer) -> None:
            _write(_stored_rows(store, path, chosen), chosen, writer, new)

        return file_splits(store, self.name, chosen, "sequence", build, new)


def _label(column: Column) -> str:
    return column if isinstance(column, str) else f"column {column}"


@dataclass(frozen=True)
class Rows:
    """The rows of a file, encoded."""

    name: str  # begins messages
    values: np.ndarray  # (rows, columns)
    whole: np.ndarray  # of each row whether it has no missing cell, (rows,)
    lattices: Any  # of `Encoding.noted`
    left_out: list[str]  # notes on the columns, with those that are not used
    warnings: list[str]
    groups: np.ndarray | None = None  # the number of each row's group, (rows,)


def _table(path: Path, chosen: CsvOptions) -> Table:
    missing = chosen.missing if isinstance(chosen.missing, tuple) else ()
    return read_table(f"csv: {path}", path, chosen.header, chosen.separator, missing)


@lru_cache(maxsize=16)
def _columns(path: Path, chosen: CsvOptions, stamp: tuple[int, int]) -> tuple[Column, ...]:
    """Return all columns of numbers of a file of this size and time."""
    table = _table(path, chosen)
    places = table.numeric([] if chosen.groups is None else [table.place(chosen.groups, "groups")])
    return tuple(table.names[place] if chosen.header else place + 1 for place in places)


def _read_rows(path: Path, chosen: CsvOptions) -> Rows:
    table = _table(path, chosen)
    name, columns = table.name, chosen.columns
    if isinstance(columns, int):
        if columns != len(table.names):
            raise DataError(f"{name}: has {len(table.names)} columns, and columns = {columns} takes all; name some")
        columns = tuple(range(1, columns + 1))
    places = [table.place(column) for column in columns or ()]
    values, groups = table.numbers(places, drop=chosen.missing != "refuse"), None
    if chosen.groups is not None:
        groups = table.frame[table.place(chosen.groups, "groups")].factorize()[0]
        if lacking := int((groups < 0).sum()):
            raise DataError(f"{name}: {lacking:,} rows have no value of {_label(chosen.groups)}; fill it in")
    there = np.isfinite(values).all(axis=1)
    if not there.any():
        raise DataError(f"{name}: each of its {len(values):,} rows has a missing cell; fill them")
    if there.all() and np.abs(values).max() < EXACT and (values == np.round(values)).all():
        values = values.astype(np.int64)
    survey = Survey(values.shape[1], values.dtype, int(there.sum()))
    survey.add(values[there][:, :, None])
    labels = [table.label(place) for place in places]
    noise, written = chosen.noise, None
    if noise == LAST_DIGIT:
        noise, written = None, tuple(map(written_digits, values[there].T))
    encoding = choose_encoding(name, survey, "sequence", chosen.step, None, noise, labels, written)
    rows = np.zeros(values.shape, encoding.dtype)
    rows[there] = encoding.encode(values[there][:, :, None], "rows", 0)[..., 0]
    used = places + ([] if chosen.groups is None else [table.place(chosen.groups)])
    noted, warnings = remarks_on_columns(values[there], labels)
    return Rows(name, rows, there, encoding.noted(), [*table.left_out(used), *noted], warnings, groups)


def _stored_rows(store: Store, path: Path, chosen: CsvOptions) -> Rows:
    """Return the rows of the cache, mapped into memory; read on the first call."""

    def build(writer: Writer) -> None:
        rows = _read_rows(path, chosen)
        writer.save("values", rows.values)
        writer.save("whole", rows.whole)
        if rows.groups is not None:
            writer.save("groups", rows.groups)
        writer.notes = {"lattices": rows.lattices, "left_out": rows.left_out, "warnings": rows.warnings}

    kept = {"file", "columns", "header", "separator", "missing", "step", "noise", "groups"}
    options = chosen.model_dump(mode="json", include=kept)
    prepared = prepare(store, "csv-rows", {"version": VERSION, **options}, [path], build)
    groups = None if chosen.groups is None else prepared.array("groups")
    return Rows(f"csv: {path}", prepared.array("values"), prepared.array("whole"), **prepared.notes, groups=groups)


def _write(rows: Rows, chosen: CsvOptions, writer: Writer, new: NewSplit | None) -> None:
    """Cut and write the events of each split."""
    values, whole = rows.values, rows.whole
    if chosen.length == 1:
        values, whole = values[whole], np.ones(whole.sum(), bool)
    if chosen.shuffle:
        values = values[seeded_order(len(values))]
    if rows.groups is not None:
        cuts, test_share, order = _cut_groups(rows, chosen, new)
        of_windows = ""
    elif new is None:
        cuts, windows = _cut(rows.name, values, whole, chosen)
        of_windows = f", and with them {windows:,} windows" * (chosen.length > 1)
        test_share, order = None, f"by seed {SEED}" if chosen.shuffle else "in order"
    else:
        cuts, test_share = _cut_ring(rows.name, values, whole, chosen, new)
        gap = "one row" if chosen.length == 1 else f"{chosen.length} rows"
        of_windows, order = "", f"{described_ring(new)}, with {gap} between the splits"
    dropped = f"dropped: {(~rows.whole).sum():,} of {len(rows.whole):,} rows with a missing cell{of_windows}"
    for split, pieces in cuts.items():
        count = sum(len(begins) for _, begins in pieces)
        target = writer.create(split, (count, values.shape[1], chosen.length), values.dtype)
        for part, begins in pieces:
            fill_windows(target[: len(begins)], part, begins)
            target = target[len(begins) :]
    events = "vectors" if chosen.length == 1 else f"windows of {chosen.length} rows"
    writer.notes = {
        "levels": None,
        "lattices": rows.lattices,
        "left_out": [dropped] * (not rows.whole.all()) + rows.left_out,
        "warnings": rows.warnings,
        "test_share": test_share,
        "description": (
            f"{Path(chosen.file).name}: {events} of {values.shape[1]} columns; train, validation and test are the "
            f"shares {', '.join(map(str, chosen.shares))} of {len(values)} rows, {order}{noise_text(rows.lattices)}"
        ),
    }


def _cut_groups(rows: Rows, chosen: CsvOptions, new: NewSplit | None) -> tuple[Cuts, float | None, str]:
    """Return the runs of rows of each split, of whole groups, with the begins of their events; test share; a phrase."""
    assert rows.groups is not None
    split, share, text = split_groups(rows.name, rows.groups, chosen.shares, new)
    joints = np.flatnonzero(np.diff(rows.groups)) + 1
    cuts: Cuts = {name: [] for name in SPLITS}
    for first, last in pairwise([0, *joints.tolist(), len(split)]):
        if split[first] < 0:
            continue
        name = SPLITS[split[first]]
        for stretch in stretches_of(rows.values[first:last].T, rows.whole[first:last]):
            begins = starts(stretch, chosen.length, _stride(name, chosen))
            cuts[name] += [(stretch.values, begins)] * bool(len(begins))
    for name, pieces in cuts.items():
        if not pieces:
            raise DataError(f"{rows.name}: no group of {name} has {chosen.length} rows in a row; take a shorter length")
    return cuts, share, f"{text} of {_label(chosen.groups or 0)}"


def _stride(split: str, chosen: CsvOptions) -> int:
    return chosen.stride if split == "train" and chosen.stride is not None else chosen.length


def _cut(name: str, values: np.ndarray, whole: np.ndarray, chosen: CsvOptions) -> tuple[Cuts, int]:
    """Return the rows of each split with the begins of its events, and how many windows have a missing row."""
    ends = np.cumsum(share_out(name, len(values), chosen.shares))
    cuts, windows = {}, 0
    for split, part, there in zip(SPLITS, np.split(values, ends), np.split(whole, ends), strict=False):
        begins = np.arange(0, len(part) - chosen.length + 1, _stride(split, chosen))
        missing = np.concatenate([[0], np.cumsum(~there)])
        kept = begins[missing[begins + chosen.length] == missing[begins]]
        windows += len(begins) - len(kept)
        if not len(kept):
            lacking = f", of which {len(begins)} have a missing row" * (len(begins) > 0)
            raise DataError(
                f"{name}: {split} has {len(part)} of {len(values)} rows, too few for a window of {chosen.length}"
                f"{lacking}"
            )
        cuts[split] = [(part.T, kept)]
    return cuts, windows


def _cut_ring(
    name: str, values: np.ndarray, whole: np.ndarray, chosen: CsvOptions, new: NewSplit
) -> tuple[Cuts, float]:
    """Return the runs of rows of each new split with the begins of their events, and the share of test."""
    used = sum(share_out(name, len(values), chosen.shares))
    _, validation, test = (share / math.fsum(chosen.shares) for share in chosen.shares)
    runs = list(stretches_of(values[:used].T, whole[:used]))
    parts, test_share = split_ring(runs, validation, test, chosen.length, new)
    cuts = {}
    for split, stretches in parts.items():
        pieces = [(stretch.values, starts(stretch, chosen.length, _stride(split, chosen))) for stretch in stretches]
        if not any(len(begins) for _, begins in pieces):
            raise DataError(
                f"{name}: split {new.seed} leaves {samples(stretches)} of {len(values)} rows for {split}, too few for "
                f"a window of {chosen.length}; {chosen.length} rows are left out between the splits. Take a shorter "
                "length or other shares"
            )
        cuts[split] = pieces
    return cuts, test_share
