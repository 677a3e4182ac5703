"""Read .csv files by pandas, and refuse what it would misread: rows of another length, texts among numbers."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import numpy as np

from harness.core.errors import DataError, nearest
from harness.core.files import DATA, open_file
from harness.core.provenance.environment import available_memory
from harness.core.run_options import shown_bytes
from harness.core.texts import first_few
from harness.datasets._store.selection import SPLIT_NAMES, SPLITS
from harness.datasets._values.encoding import MOST_REPEATED, is_code
from harness.datasets._values.lattice import EXACT

if TYPE_CHECKING:
    import pandas as pd

Column = str | int
"""A column by its name in the header, or by its number from 1 on."""

MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "<null>", "?", "-")  # texts of a missing cell
FEW = 20  # distinct values of a category
RECURRING = 0.01  # share of the rows of a column that have the text of its first line, from which on this is a value
IDS = re.compile(r"(^|[^a-z])(id|subject|patient|person|participant|user|record|session|trial|group)s?([^a-z]|$)", re.I)
"""Names of columns that tell whose row it is."""
FOLDS = re.compile(r"(^|[^a-z])(folds?|splits?)([^a-z]|$)", re.I)
"""Names of columns of whole numbers that tell in which fold a row is."""
TIMES = re.compile(r"(^|[^a-z])(time|date|datetime|timestamp|year|month|day|hour)([^a-z]|$)", re.I)
"""Names of columns that tell when a row was measured."""
NUMERIC = 0.5  # share of the cells that are numbers, from which on others are mistakes
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")


@dataclass(frozen=True)
class TextTable:
    """A .csv file.

    Attributes:
        name: begins messages.
        header: whether the first row has the names of the columns.
        names: the cells of the first row.
        frame: all cells below the header, in columns 0, 1, ...; NaN where one is missing.
    """

    name: str
    header: bool
    names: tuple[str, ...]
    frame: pd.DataFrame

    def place(self, column: Column, option: str = "columns") -> int:
        """Return the place of a column that an option names; raise a DataError if there is no such one."""
        if isinstance(column, int):
            if column > len(self.names):
                raise DataError(
                    f"{self.name}: has {len(self.names)} columns, and {option} names number {column}{self._one_cell()}"
                )
            return column - 1
        if (count := self.names.count(column)) > 1:
            raise DataError(f"{self.name}: has {count} columns {column!r}; rename them, or say header: false")
        if not count:
            raise DataError(f"{self.name}: has no column {column!r}; {nearest(column, self.names)}{self._one_cell()}")
        return self.names.index(column)

    def _one_cell(self) -> str:
        return _separator_hint(self.names, str(self.frame[0][0]))

    def label(self, place: int) -> str:
        """Return the name of a column for messages, or its number where it has none."""
        return repr(self.names[place]) if self.header and self.names[place] else f"column {place + 1}"

    def numbers(self, places: Sequence[int], drop: bool) -> np.ndarray:
        """Return columns of numbers, (rows, columns) in float64, with NaN for a missing cell if `drop`.

        Raises:
            DataError: with the first cell that is no finite number.
        """
        values = np.empty((len(self.frame), len(places)))
        for at, place in enumerate(places):
            column = self.frame[place]
            values[:, at] = column if column.dtype.kind in "iuf" else _converted(column)
            if column.dtype.kind in "iu" and np.abs(values[:, at]).max(initial=0) >= EXACT:
                raise DataError(
                    f"{self.name}: column {self.label(place)} has whole numbers beyond 2^53, which float64 rounds; "
                    "subtract an offset, or leave the column out"
                )
            wrong = ~np.isfinite(values[:, at]) & ~(drop & column.isna().to_numpy())
            if wrong.any():
                raise self._wrong(int(wrong.argmax()), place)
        return values

    def _wrong(self, row: int, place: int) -> DataError:
        column, proposed = self.frame[place], None
        cell = "" if column.isna()[row] else str(column[row])
        hint = "is not a finite number; fill such cells, or leave the row out, or name the `columns` to use"
        if not cell:
            hint, proposed = "is a missing cell; fill such cells, or say missing: drop", {"missing": "drop"}
        elif _DECIMAL_COMMA.fullmatch(cell):
            hint = "has a decimal comma, or one between thousands; write a point, or nothing between thousands"
        return DataError(f"{self.name}: row {row + 1}, column {self.label(place)}: {cell!r} {hint}", proposed)

    def unusable(self, place: int) -> str | None:
        """Return why a column has no numbers to learn from; None if it has."""
        column = self.frame[place]
        if self.header and not self.names[place]:
            return "has no name"
        there = column.dropna()
        if 2 * len(there) < len(column) or not len(there):
            return "has mostly empty cells"
        if column.dtype.kind not in "iuf" and _converted(there).notna().mean() <= NUMERIC:
            return f"has texts such as {str(there.iloc[0])[:20]!r}"
        return "has one value" if there.nunique() == 1 else None

    @property
    def unnamed(self) -> bool:
        """Whether the first line, read as names, has numbers, or two texts and more, most of them values of columns."""
        texts = [place for place in range(len(self.names)) if self.frame[place].dtype.kind not in "iuf"]
        recurring = sum((self.frame[place] == self.names[place]).mean() > RECURRING for place in texts)
        return _are_numbers(self.names) or 2 * recurring > max(2, len(texts))

    def numeric(self, others: Mapping[int, str]) -> list[int]:
        """Return the places of all columns of numbers but `others`, which options name.

        Raises:
            DataError: no column has numbers, or the first row has values in place of names.
        """
        if self.header and self.unnamed:
            fault = f"the first line has values in place of names, such as {self.names[0]}"
            raise DataError(f"{self.name}: {fault}; say header: false if the file has no header", {"header": False})
        places = [place for place in range(len(self.names)) if place not in others and self.unusable(place) is None]
        for place in range(len(self.names)):
            texts = self.frame[place].dropna() if place not in {*places, *others} else self.frame[place][:0]
            if len(texts) and _DECIMAL_COMMA.fullmatch(str(texts.iloc[0])):  # numbers, which must not be left out
                raise self._wrong(int(texts.index[0]), place)
        if not places:
            why = "; ".join([*self.left_out((), others), "remove lines above its header, if there are any"])
            raise DataError(f"{self.name}: has no column of numbers that vary{self._one_cell()}; {why}")
        if self.header:
            for place in places:
                self.place(self.names[place])  # raises for two of one name
        return places

    def numbering(self) -> int | None:
        """Return the place of a column of rising times, or of row numbers; None without one."""
        for place in self.numeric({}):
            column = self.frame[place]
            timed = self.header and TIMES.search(self.names[place])
            steps = np.diff(column.to_numpy()) if column.dtype.kind in "iuf" else np.zeros(1)
            if (steps == 1).all() or (timed and (steps > 0).all()):
                return place
        return None

    def blocks(self) -> list[int]:
        """Return the places of columns named like an id whose rows of one value follow one another."""
        found = []
        for place, name in enumerate(self.names if self.header else ()):
            numbers = self.frame[place].factorize()[0]
            runs = 1 + int((np.diff(numbers) != 0).sum())
            if IDS.search(name) and 2 <= runs == numbers.max() + 1 <= len(numbers) // 2:
                found.append(place)
        return found

    def splits(self) -> list[int]:
        """Return the places of columns whose texts are the names of splits, or whose whole numbers are named folds."""
        found = []
        for place, name in enumerate(self.names):
            cells = self.frame[place]
            few = cells.dtype.kind != "f" and cells.nunique() <= FEW
            values = cells.dropna().unique().tolist() if few else []
            if cells.dtype.kind in "iu":
                stated = self.header and bool(FOLDS.search(name)) and len(values) >= len(SPLITS)
            else:
                names = {SPLIT_NAMES.get(str(value).strip().lower()) for value in values}
                stated = {"train", "test"} <= names <= {*SPLITS}
            found += [place] * stated
        return found

    def left_out(self, places: Sequence[int], named: Mapping[int, str]) -> list[str]:
        """Return a clause on the columns that are no values, with the reason, or the option by which they are named."""
        reasons = []
        for place in sorted({*range(len(self.names))} - {*places}):
            reason = f"the option {named[place]}" if place in named else self.unusable(place) or "not named"
            reasons.append(f"{self.label(place)} ({reason})")
        return [f"columns that are not used: {first_few(reasons)}"] * bool(reasons)


def _converted(column: pd.Series) -> pd.Series:
    import pandas as pd

    if column.dtype.kind == "b":
        return pd.Series(np.nan, column.index)
    return pd.to_numeric(column, errors="coerce")


def _are_numbers(cells: Sequence[str]) -> bool:
    """Return whether the cells of a first line are measurements; consecutive whole numbers are names, as of years."""
    numbers = []
    for cell in cells:
        with contextlib.suppress(ValueError):
            numbers.append(float(cell))
    whole = [number for number in numbers if number == round(number)] if np.isfinite(numbers).all() else []
    named = len(whole) == len(numbers) and np.ptp(whole or [0]) == len(whole) - 1 and len({*whole}) == len(whole)
    return 2 * len(numbers) >= len(cells) and not (named and len(numbers) > 1)


def _separator(first: str, second: str) -> str | None:
    """Return the mark that may separate the cells of two lines, the second perhaps with a row name, or None."""
    for mark in (",", "\t", ";", "|", " "):
        lines = [csv.reader([line.strip(" \r\n")], delimiter=mark, skipinitialspace=True) for line in (first, second)]
        with contextlib.suppress(csv.Error):  # a line without the mark may be longer than a cell can be
            names, cells = (len(next(line, ())) for line in lines)
            if names > 1 and cells - names in (0, 1):
                return mark
    return None


def _separator_hint(first: Sequence[str], other: str) -> str:
    mark = _separator(first[0], other) if len(first) == 1 else None
    return "" if mark is None else f"; its cells seem to be separated otherwise: say separator: {json.dumps(mark)}"


def read_table(name: str, path: Path, header: bool, separator: str, missing: Sequence[str | float] = ()) -> TextTable:
    """Return the content of a file; the texts in `missing`, and those in MISSING, stand for missing cells.

    Raises:
        OSError: it is no regular file, or cannot be read.
        DataError: it is no text in UTF-8, rows differ in length, or it has none.
    """
    import pandas as pd

    if path.stat().st_size > (most := available_memory()):
        raise DataError(f"{name}: has more than {shown_bytes(most)}, the available memory; write fewer rows")
    with _text(name, path) as file:
        reader = csv.reader(file, delimiter=separator, skipinitialspace=True)
        try:
            first = next(filter(None, reader), [])
            if not first:
                raise DataError(f"{name}: is empty")
            count, row_names = 0 if header else 1, False
            for cells in filter(None, reader):  # pandas would fill up short ones, or take a column for an index
                count += 1
                one_more = len(cells) == len(first) + 1 and cells[-1] and cells[0].strip("-+:./ 0123456789")
                if header and count == 1 and one_more:  # R writes no name above its row names: unique texts, no dates
                    first, row_names = ["", *first], True
                if len(cells) != len(first):
                    fault = f"line {reader.line_num} has {len(cells)} cells, and the first has {len(first)}"
                    hint = _separator_hint(first, separator.join(cells)) or "; correct it, or remove what is no row"
                    raise DataError(f"{name}: {fault}{hint}")
            file.seek(0)
            frame = pd.read_csv(
                file,
                sep=separator,
                header=0 if header else None,
                names=list(range(len(first))),
                index_col=False,
                skipinitialspace=True,
                na_values=cast("list[str]", [*MISSING, *missing]),
                keep_default_na=False,
                low_memory=False,
                float_precision="round_trip",  # others round some numbers wrongly
            )
        except (csv.Error, pd.errors.ParserError) as error:
            raise DataError(
                f"{name}: line {reader.line_num}: cannot be split into cells ({error}), as after a quote that is not "
                "closed; close it, or write the file without its column of long texts"
            ) from error
    if row_names and not frame[0].is_unique:
        raise DataError(f"{name}: texts without a name repeat, so are no names of rows; name each column")
    if frame.empty or len(frame) != count:
        raise DataError(f"{name}: has {len(frame):,} of {count:,} rows that can be read; write it without quotes")
    return TextTable(name, header, tuple(cell.strip() for cell in first), frame)


@contextlib.contextmanager
def _text(name: str, path: Path) -> Iterator[TextIO]:
    """Open a file as text, decompressed by its ending."""
    try:
        with open_file(path, DATA) as file:
            content = gzip.GzipFile(fileobj=file) if path.suffix.lower() == ".gz" else file
            yield io.TextIOWrapper(cast("io.BufferedReader", content), "utf-8-sig", newline="")
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: is not text in UTF-8 ({error.reason}); write it in this encoding") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{name}: cannot be decompressed ({error}); get it anew") from error


def proposed_options(path: Path) -> dict[str, Any]:
    """Return options for a file: its separator and header, its split, rows of one group kept together, others shuffled.

    Rows with a column of time stay in order.
    """
    with _text(f"csv: {path}", path) as file:
        separator = _separator(file.readline(), file.readline()) or ","
    options: dict[str, Any] = {} if separator == "," else {"separator": separator}
    table = read_table(f"csv: {path}", path, True, separator)
    header = not table.unnamed
    if not header:
        table, options["header"] = read_table(f"csv: {path}", path, False, separator), False
    timed = header and any(map(TIMES.search, table.names))
    if (place := table.numbering()) is not None:
        options["time"] = table.names[place] if header else place + 1
    if timed and len(table.numeric({} if place is None else {place: "time"})) == 1:  # a series: its windows are events
        options["length"] = 1 << max(1, min(6, (len(table.frame) // 50).bit_length() - 1))
    for option, places in {"split": table.splits(), "groups": table.blocks()}.items():
        if places:
            return {**options, option: table.names[places[0]] if header else places[0] + 1}
    return options if timed else {**options, "shuffle": True}


def remarks_on_columns(values: np.ndarray, labels: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return clauses on the columns (rows, columns) that are counts or categories, and warnings of those like an id."""
    few, numbered, coded = [], [], []
    for label, column in zip(labels, values.T, strict=True):
        distinct, counts = np.unique(column, return_counts=True)
        whole = bool((distinct == np.round(distinct)).all())
        code, share = distinct[counts.argmax()], counts.max() / len(column)
        if share > MOST_REPEATED and is_code(code):
            coded.append(f"{label}: {share:.0%} are {code:g}, which may stand for a missing value: missing: [{code:g}]")
        if whole and len(distinct) == len(column) > FEW and ((np.diff(column) > 0).all() or IDS.search(label)):
            numbered.append(label)
        elif whole or len(distinct) <= FEW:
            few.append(f"{label} ({len(distinct):,} values, {share:.0%} are {code:g})")
    noted = [f"columns of whole numbers or few values: {first_few(few)}"] * bool(few)
    hint = "a flow learns the number of the row; name the `columns` to use without it"
    text = f"{first_few(numbered)}: another whole number in each row, as those of an id or a date: {hint}"
    return noted, coded + [text] * bool(numbered)
