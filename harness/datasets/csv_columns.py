"""Bring your own table: the columns of a .csv file, row by row as vectors or in windows as sequences."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TextIO, cast

import numpy as np
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from harness.core.errors import DataError, nearest
from harness.core.files import check_lines
from harness.core.provenance.machine import available_memory
from harness.core.settings import Count, Flag, Settings
from harness.datasets._images.selection import SEED, seeded_order
from harness.datasets._signals.windows import fill_windows
from harness.datasets._store.store import Store, Writer, prepare
from harness.datasets._values.encoding import choose_encoding, lattice_facts
from harness.datasets._values.file_options import SHARES, SPLITS, STEP, Shares, Step, share_out
from harness.datasets._values.lattice import EXACT
from harness.datasets._values.value_survey import Survey
from harness.datasets.base import Dataset, DatasetInfo, Splits

VERSION = 2  # of the prepared arrays

ColumnName = Annotated[str, Field(min_length=1, strict=True)]


class CsvOptions(Settings):
    """The file, its columns, and the rows of an event."""

    file: Annotated[str, Field(min_length=1)] = Field(
        description="the .csv file, beside the suite, in the data root or by an absolute path"
    )
    columns: Annotated[tuple[ColumnName, ...], Field(min_length=1)] | Count = Field(
        description="the columns that are used, by their names in the header, or the number of columns to use all"
    )
    header: Flag = Field(True, description="whether the first line has the names; false: columns is their number")
    length: Count = Field(1, description="the number of rows of an event: 1 for vectors, more for windows of sequences")
    stride: Count | None = Field(
        None, description="rows from one training window to the next; null: the length, so that none overlap"
    )
    shares: Shares = Field(SHARES, description="the shares of the rows that are train, validation and test")
    shuffle: Flag = Field(
        False, description="whether rows that are vectors are shuffled by a fixed seed before they are split"
    )
    step: Step = Field(None, description=f"the lattice step of the values: {STEP}; null: detect")

    @field_validator("columns")
    @classmethod
    def _once(cls, columns: Any) -> Any:
        if isinstance(columns, tuple) and len(set(columns)) < len(columns):
            raise PydanticCustomError("columns", "names a column twice")
        return columns

    @field_validator("header")
    @classmethod
    def _names(cls, header: bool, info: ValidationInfo) -> bool:
        if not header and isinstance(info.data.get("columns"), tuple):
            raise PydanticCustomError("header", "should be true for columns with names")
        return header

    @field_validator("shuffle")
    @classmethod
    def _of_vectors(cls, shuffle: bool, info: ValidationInfo) -> bool:
        if shuffle and info.data.get("length", 1) > 1:
            raise PydanticCustomError("shuffle", "should be false for windows, which follow one another in time")
        return shuffle

    @field_validator("step")
    @classmethod
    def _for_each_column(cls, step: Any, info: ValidationInfo) -> Any:
        if isinstance(step, tuple) and len(step) > 1 and "columns" in info.data:
            count = _count(info.data["columns"])
            if len(step) != count:
                raise PydanticCustomError("step", f"should be {STEP}; there are {count} columns")
        return step


class CsvColumns(Dataset, name="csv"):
    """Columns of a user-supplied .csv file."""

    info = DatasetInfo(
        title="Your own table, from a .csv file",
        kind="sequence",
        what=(
            "numbers, separated by commas, of the columns that you name. Each row is an event, a vector (D, 1), or "
            "windows of `length` rows are events (C, L). Rows are taken to be in the order of time: train comes first "
            "and test last, and no window crosses from one into another; shuffle: true is for vectors in any order. "
            "Every cell of these columns must be a finite number; a wrong one is named by line and column. Values on "
            "a lattice, such as whole numbers or values of three decimals, become whole numbers by a step that is "
            "stated or found for each column"
        ),
        size="the file's",
        licence="the file's",
        source="the file that the option `file` names",
        how_to_get="put the file beside the suite or into the data root; options: {file: mine.csv, columns: [a, b]}",
    )
    on_disk = True
    paths = ("file",)
    options_model = CsvOptions

    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return (columns, length)."""
        chosen = cast(CsvOptions, self.parse(options))
        return (_count(chosen.columns), chosen.length)

    def channels(self, options: Mapping[str, Any]) -> Sequence[str]:
        """Return the names of the columns, where the options have them."""
        columns = cast(CsvOptions, self.parse(options)).columns
        return () if isinstance(columns, int) else columns

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, mapped from the cache."""
        chosen = cast(CsvOptions, self.parse(options))
        way_out = "it is the option `file`: beside the suite, below the data root or absolute"
        path = store.find(self.name, chosen.file, way_out)
        key = {"version": VERSION, **chosen.model_dump(mode="json")}
        prepared = prepare(store, self.name, key, [path], lambda writer: _build(path, chosen, writer))
        notes = prepared.notes
        return Splits.of(
            prepared,
            levels=None,
            description=notes["description"],
            **lattice_facts(notes["lattices"], "sequence"),
        )


def _count(columns: tuple[str, ...] | int) -> int:
    return columns if isinstance(columns, int) else len(columns)


def _build(path: Path, chosen: CsvOptions, writer: Writer) -> None:
    name = f"csv: {path}"
    values = _read(name, path, chosen)[:, :, None]
    survey = Survey(values.shape[1], values.dtype, len(values))
    survey.add(values)
    encoding = choose_encoding(name, survey, "sequence", chosen.step, None)
    rows = encoding.encode(values, "rows", 0)[..., 0]
    if chosen.shuffle:
        rows = rows[seeded_order(len(rows))]
    ends = np.cumsum(share_out(name, len(rows), chosen.shares))
    for split, part in zip(SPLITS, np.split(rows, ends), strict=False):
        stride = chosen.stride if split == "train" and chosen.stride is not None else chosen.length
        begins = np.arange(0, len(part) - chosen.length + 1, stride)
        if not len(begins):
            raise DataError(
                f"{name}: {split} has {len(part)} of {len(rows)} rows, too few for a window of {chosen.length}"
            )
        fill_windows(writer.create(split, (len(begins), rows.shape[1], chosen.length), rows.dtype), part.T, begins)
    events = "vectors" if chosen.length == 1 else f"windows of {chosen.length} rows"
    order = f"by seed {SEED}" if chosen.shuffle else "in order"
    writer.notes["lattices"] = encoding.noted()
    writer.notes["description"] = (
        f"{path.name}: {events} of {rows.shape[1]} columns; train, validation and test are the shares "
        f"{', '.join(map(str, chosen.shares))} of {len(rows)} rows, {order}"
    )


def _read(name: str, path: Path, chosen: CsvOptions) -> np.ndarray:
    """Return the chosen columns (rows, columns), float64, or int64 where all values are whole."""
    import pandas as pd

    check_lines(path, available_memory())
    width, places = _places(name, path, chosen)
    reason = "has no rows"
    values = np.empty((0, 0))
    try:
        frame = pd.read_csv(
            path,
            header=None,
            skiprows=int(chosen.header),
            # Without `usecols`, under which pandas accepts lines with too many cells.
            dtype={place: np.float64 if place in places else str for place in range(width)},
            skipinitialspace=True,
            compression=None,
            encoding="utf-8-sig",
            encoding_errors="replace",
        )
        values = frame[places].to_numpy()
    except (ValueError, KeyError) as error:  # a cell that is no number, or a line of another length
        reason = str(error)
    if not len(values) or not np.isfinite(values).all():
        raise DataError(f"{name}: {_fault(path, chosen.header, places) or reason}")
    whole = np.abs(values).max() < EXACT and (values == np.round(values)).all()
    return values.astype(np.int64) if whole else values


def _opened(path: Path) -> TextIO:
    return path.open(newline="", encoding="utf-8-sig", errors="replace")


def _places(name: str, path: Path, chosen: CsvOptions) -> tuple[int, list[int]]:
    """Return the number of columns in the file, and the position of each chosen one."""
    with _opened(path) as file:
        names = [cell.strip() for cell in next(csv.reader(file), [])]
    if isinstance(chosen.columns, int):
        if len(names) != chosen.columns:
            raise DataError(f"{name}: has {len(names)} columns, and columns = {chosen.columns} takes all; name some")
        return len(names), list(range(chosen.columns))
    for column in chosen.columns:
        if column not in names:
            raise DataError(f"{name}: has no column {column!r} in line 1; {nearest(column, names)}")
        if names.count(column) > 1:
            raise DataError(f"{name}: line 1 has {names.count(column)} columns {column!r}; rename them")
    return len(names), [names.index(column) for column in chosen.columns]


def _fault(path: Path, header: bool, places: list[int]) -> str | None:
    """Return the first line of another length, or cell that is no finite number; None if there is none."""
    with _opened(path) as file:
        reader = csv.reader(file, skipinitialspace=True)
        first: list[str] = []
        for cells in reader:
            if not first:
                first = cells
                if header:
                    continue
            if cells and len(cells) != len(first):
                return f"line {reader.line_num} has {len(cells)} cells, and the first has {len(first)}"
            for place in places if cells else ():
                if not _is_finite(cells[place]):
                    column = repr(first[place]) if header else place + 1
                    return (
                        f"line {reader.line_num}, column {column}: {cells[place]!r} is not a finite number; fill such "
                        "cells, or leave the line out"
                    )
    return None


def _is_finite(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False
