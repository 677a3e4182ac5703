"""Options of a .csv file: its columns, and the rows of an event."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from harness.core.errors import UserError
from harness.core.settings import Count, Flag
from harness.datasets._values.file_options import FileOptions, Name
from harness.datasets._values.widths import NOISE, WIDTH, Noise

MissingValues = Annotated[tuple[float | str, ...], Field(min_length=1)]
COLUMNS = ("groups", "stratify", "split", "time")
"""Options that name a column."""


class CsvOptions(FileOptions):
    """The file, its columns, and the rows of an event."""

    alone = FileOptions.alone | {"split": ("groups", "stratify", "test_file", "shuffle")}

    columns: Annotated[tuple[Name | Count, ...], Field(min_length=1)] | Count | None = Field(
        None,
        description="the columns that are used, by their names in the header, or without one by their numbers from 1 "
        "on; null: all columns of numbers that vary; or the number of columns to use all",
    )
    split: Name | Count | None = Field(
        None,
        description="the column with the split of each row: train, validation or test, or the number of its fold, of "
        "which the last is test and the one before it validation",
    )
    time: Name | Count | None = Field(
        None, description="the column of the time of each row: no window spans a hole or a step back"
    )
    header: Flag = Field(True, description="whether the first line has the names of the columns")
    separator: Literal[",", ";", "\t", "|", " "] = Field(",", description="the character between two cells")
    length: Count = Field(1, description="the number of rows of an event: 1 for vectors, more for windows of sequences")
    stride: Count | None = Field(
        None, description="rows from one training window to the next; null: the length, so that none overlap"
    )
    missing: Literal["refuse", "drop"] | MissingValues = Field(
        "refuse",
        description="empty cells and NA: refuse the file, or drop the rows, and the windows that would have such a "
        "row, also those of further values that stand for missing ones, such as [-9999]",
    )
    noise: Noise = Field(
        None,
        description=f"{WIDTH}: {NOISE}; or last_digit: for each value the unit of its last written digit",
    )

    @field_validator("columns")
    @classmethod
    def _once(cls, columns: Any) -> Any:
        if isinstance(columns, tuple) and len(set(columns)) < len(columns):
            raise PydanticCustomError("columns", "names a column twice")
        return columns

    @field_validator("header")
    @classmethod
    def _names(cls, header: bool, info: ValidationInfo) -> bool:
        columns = info.data.get("columns")
        stated = [*columns] if isinstance(columns, tuple) else []
        stated += [column for name in COLUMNS if (column := info.data.get(name)) is not None]
        if any(isinstance(column, str) != header for column in stated):
            raise PydanticCustomError(
                "header", "should be true for columns with names, and false for numbers of columns"
            )
        return header

    @field_validator("length")
    @classmethod
    def _of_vectors(cls, length: int, info: ValidationInfo) -> int:
        for option in ("stratify", "shuffle"):
            if length > 1 and info.data.get(option):
                raise PydanticCustomError("length", "should be 1 with {option}, for vectors", {"option": option})
        return length

    @property
    def marking(self) -> tuple[str, str | int] | None:
        """The option, and the column that it names, by which rows are split."""
        stated = [(name, getattr(self, name)) for name in ("groups", "split", "stratify")]
        return next(((name, column) for name, column in stated if column is not None), None)

    @property
    def shape(self) -> tuple[int, int]:
        """The event shape (columns, length)."""
        if self.columns is None:
            raise UserError(
                f"csv: {self.file}: is neither beside the suite nor in the data root, so that its columns are unknown; "
                "put it there (--data ROOT or $INVERTBENCH_DATA), or name the `columns`"
            )
        return (self.columns if isinstance(self.columns, int) else len(self.columns), self.length)

    @property
    def channels(self) -> tuple[str, ...]:
        """The names of the columns, where the options have them."""
        named = self.columns if isinstance(self.columns, tuple) else ()
        return tuple(column if isinstance(column, str) else f"column {column}" for column in named)
