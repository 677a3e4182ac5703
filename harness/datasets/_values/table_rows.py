"""The rows of a table: its columns as encoded numbers, and what says how they are split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import DataError
from harness.datasets._store.selection import SPLIT_NAMES, SPLITS
from harness.datasets._store.store import Store, Writer, prepare
from harness.datasets._values.column_options import CsvOptions
from harness.datasets._values.encoding import choose_encoding, written_digits
from harness.datasets._values.lattice import EXACT
from harness.datasets._values.survey import Survey
from harness.datasets._values.tables import Column, Table, read_table, remarks_on_columns
from harness.datasets._values.user_files import LAST_DIGIT, VERSION


def label_of(column: Column) -> str:
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
    lattices: Any  # of `Encoding.noted`
    left_out: list[str]  # notes on the columns, with those that are not used
    warnings: list[str]


def _table(path: Path, chosen: CsvOptions) -> Table:
    missing = chosen.missing if isinstance(chosen.missing, tuple) else ()
    return read_table(f"csv: {path}", path, chosen.header, chosen.separator, missing)


@lru_cache(maxsize=16)
def columns_of(path: Path, chosen: CsvOptions, stamp: tuple[int, int]) -> tuple[Column, ...]:
    """Return all columns of numbers of a file of this size and time."""
    table = _table(path, chosen)
    places = table.numeric(_others(table, chosen))
    return tuple(table.names[place] if chosen.header else place + 1 for place in places)


def _others(table: Table, chosen: CsvOptions) -> list[int]:
    """Return the places of the columns that are used for the split alone."""
    named = {name: getattr(chosen, name) for name in ("groups", "split", "stratify", "time")}
    return [table.place(column, name) for name, column in named.items() if column is not None]


def read_rows(paths: Sequence[Path], chosen: CsvOptions) -> Rows:
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
    notes = [*table.left_out([*places, *_others(table, chosen)]), *noted]
    return Rows(name, rows, there, marks, breaks, labels, encoding.noted(), notes, warnings)


def _marks(table: Table, option: str, column: Column) -> np.ndarray:
    """Return the number of each row's group or class, or the place of its split in SPLITS."""
    cells = table.frame[table.place(column, option)]
    numbers, values = cells.factorize(sort=option == "split")
    if lacking := int((numbers < 0).sum()):
        raise DataError(f"{table.name}: {lacking:,} rows have no value of {label_of(column)}; fill it in")
    if option != "split":
        return numbers
    if cells.dtype.kind in "iuf":
        if len(values) < len(SPLITS):
            raise DataError(f"{table.name}: {label_of(column)} has {len(values)} folds; a split needs three")
        return np.maximum(numbers - (len(values) - len(SPLITS)), 0)
    names = [SPLIT_NAMES.get(str(value).strip().lower()) for value in values]
    if None in names or not {"train", "test"} <= {*names}:
        raise DataError(
            f"{table.name}: {label_of(column)} has {', '.join(map(repr, map(str, values[:5])))}; it must have train, "
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


def stored_rows(store: Store, path: Path, chosen: CsvOptions) -> Rows:
    """Return the rows of the cache, mapped into memory; read on the first call."""
    arrays = ("values", "whole", "marks", "breaks")
    notes = ("labels", "lattices", "left_out", "warnings")

    def build(writer: Writer) -> None:
        rows = read_rows([path], chosen)
        for name in arrays:
            writer.save(name, getattr(rows, name))
        writer.notes = {name: getattr(rows, name) for name in notes}

    options = chosen.model_dump(mode="json", exclude={"length", "stride", "shares", "shuffle"})
    prepared = prepare(store, "csv-rows", {"version": VERSION, **options}, [path], build)
    kept: dict[str, Any] = {name: prepared.array(name) for name in arrays} | prepared.notes
    return Rows(f"csv: {path}", **kept)
