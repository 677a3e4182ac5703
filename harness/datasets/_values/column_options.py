"""Options of a .csv file: its columns, and the rows of an event and of a split."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from harness.core.errors import UserError
from harness.core.settings import Count, Flag
from harness.datasets._store.selection import SHARES, Shares
from harness.datasets._values.file_options import FileOptions, Name
from harness.datasets._values.widths import NOISE, STEP, WIDTH, Noise, Step, for_each_channel

MissingValues = Annotated[tuple[float | str, ...], Field(min_length=1)]


class CsvOptions(FileOptions):
    """The file, its columns, and the rows of an event."""

    ways = (*FileOptions.ways, "shuffle", "split")

    columns: Annotated[tuple[Name | Count, ...], Field(min_length=1)] | Count | None = Field(
        None,
        description="the columns that are used, by their names in the header, or without one by their numbers from 1 "
        "on; null: all columns of numbers that vary; or the number of columns to use all",
    )
    header: Flag = Field(True, description="whether the first line has the names of the columns")
    separator: Literal[",", ";", "\t", "|", " "] = Field(",", description="the character between two cells")
    length: Count = Field(1, description="the number of rows of an event: 1 for vectors, more for windows of sequences")
    stride: Count | None = Field(
        None, description="rows from one training window to the next; null: the length, so that none overlap"
    )
    shares: Shares = Field(SHARES, description="the shares of the rows that are train, validation and test")
    shuffle: Flag = Field(
        False, description="whether rows that are vectors are shuffled by a fixed seed before they are split"
    )
    split: Name | Count | None = Field(
        None,
        description="the column with the split of each row: train, validation or test, or the number of its fold, of "
        "which the last is test and the one before it validation",
    )
    time: Name | Count | None = Field(
        None, description="the column of the time of each row: no window spans a hole or a step back"
    )
    missing: Literal["refuse", "drop"] | MissingValues = Field(
        "refuse",
        description="empty cells and NA: refuse the file, or drop the rows, and the windows that would have such a "
        "row, also those of further values that stand for missing ones, such as [-9999]",
    )
    step: Step = Field(None, description=f"the lattice step of the values: {STEP}; null: detect")
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
        stated += [column for name in ("groups", "stratify") if (column := info.data.get(name)) is not None]
        if any(isinstance(column, str) != header for column in stated):
            raise PydanticCustomError(
                "header", "should be true for columns with names, and false for numbers of columns"
            )
        return header

    @field_validator("length")
    @classmethod
    def _of_one_class(cls, length: int, info: ValidationInfo) -> int:
        if length > 1 and info.data.get("stratify") is not None:
            raise PydanticCustomError("length", "should be 1 with stratify, as windows may have several classes")
        return length

    @field_validator("split", "time")
    @classmethod
    def _of_the_header(cls, column: str | int | None, info: ValidationInfo) -> str | int | None:
        if column is not None and isinstance(column, str) != info.data.get("header", True):
            raise PydanticCustomError("column", "should be a name, or the number of a column where there is no header")
        return column

    @field_validator("shuffle")
    @classmethod
    def _of_vectors(cls, shuffle: bool, info: ValidationInfo) -> bool:
        if shuffle and info.data.get("length", 1) > 1:
            raise PydanticCustomError("shuffle", "should be false for windows, which follow one another in time")
        return shuffle

    @field_validator("step", "noise")
    @classmethod
    def _for_each_column(cls, value: Any, info: ValidationInfo) -> Any:
        columns = info.data.get("columns")
        count = len(columns) if isinstance(columns, tuple) else columns
        return for_each_channel(value, info, count)

    @property
    def states_split(self) -> bool:
        """True if the file, or several files, state the split."""
        return self.split is not None or self.test_file is not None

    @property
    def marking(self) -> tuple[str, str | int] | None:
        """The option, and the column that it names, by which rows are split."""
        stated = [(name, getattr(self, name)) for name in ("groups", "split", "stratify")]
        return next(((name, column) for name, column in stated if column is not None), None)

    @property
    def count(self) -> int:
        """The number of columns."""
        if self.columns is None:
            raise UserError(
                f"csv: {self.file}: is neither beside the suite nor in the data root, so that its columns are unknown; "
                "put it there (--data ROOT or $INVERTBENCH_DATA), or name the `columns`"
            )
        return self.columns if isinstance(self.columns, int) else len(self.columns)
