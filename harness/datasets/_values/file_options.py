"""Options of the files of users: lattice steps and widths of noise, what the files hold, and ways to state a split."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from harness.core.errors import UserError
from harness.core.settings import Count, Flag, Settings
from harness.datasets._store.selection import SHARES, Shares

STEP = "one number above 0, a list of one for each channel of a sequence, or detect"
WIDTH = "the width of uniform noise that is added to the values, in their units"
NOISE = "one width above 0, or a list with a width or null for each channel"
WIDTH_OR_DIGIT = f"{WIDTH}: {NOISE}; or last_digit: for each value the unit of its last written digit"
LAST_DIGIT: Final = "last_digit"  # the width of each value is the unit of its last written digit


def _numbers(word: str, rule: str, value: Any) -> Any:
    """Convert a number to a tuple of one; raise one error for anything but a word and the forms of the rule."""
    if value is None or value == word:
        return value
    listed = isinstance(value, (list, tuple))
    numbers = value if listed else (value,)
    stated = [number for number in numbers if not (rule == NOISE and listed and number is None)]
    if not stated or any(type(number) not in (int, float) or not 0 < number < np.inf for number in stated):
        raise PydanticCustomError("numbers", f"should be {rule}")
    return tuple(None if number is None else float(number) for number in numbers)


def not_of_digits(value: Any) -> Any:
    """Return a noise that is stated by widths; raise for that of the last digit."""
    if value == LAST_DIGIT:
        raise PydanticCustomError("noise", f"should be {NOISE}: last_digit is for csv, where numbers are written")
    return value


Widths = tuple[float | None, ...]
Step = Annotated[tuple[float, ...] | Literal["detect"] | None, BeforeValidator(partial(_numbers, "detect", STEP))]
Noise = Annotated[Widths | Literal["last_digit"] | None, BeforeValidator(partial(_numbers, LAST_DIGIT, NOISE))]
StatedNoise = Annotated[Noise, AfterValidator(not_of_digits)]

Name = Annotated[str, Field(min_length=1, strict=True)]
MissingValues = Annotated[tuple[float | str, ...], Field(min_length=1)]
COLUMNS = ("groups", "stratify", "split", "time")
"""Options that name a column."""


def _once(names: Any) -> Any:
    """Return names, or another form of an option; raise for a list with a name twice."""
    if isinstance(names, tuple) and len({*names}) < len(names):
        raise PydanticCustomError("once", "should name nothing twice")
    return names


Once = AfterValidator(_once)


class FileOptions(Settings):
    """The files, the values of their channels, and the labels by which their events are split.

    Attributes:
        alone: option -> those beside which it has no meaning.
    """

    alone: ClassVar[dict[str, tuple[str, ...]]] = {
        "stratify": ("groups",),
        "test_file": ("groups", "stratify"),
        "shares": ("test_file",),
        "shuffle": ("groups", "stratify"),
        "noise": ("step",),
    }

    file: Name = Field(description="the file, beside the suite, in the data root or by an absolute path")
    groups: Name | Count | None = Field(
        None,
        description="the column or the array, such as of subjects, whose events of one value stay in one split, and "
        "between which no window runs; null: events are split in order, or shuffled",
    )
    stratify: Name | Count | None = Field(
        None, description="the column or the array of classes of which all splits have the same shares"
    )
    test_file: Name | None = Field(None, description="a file of this form with the test events; `file` is train")
    validation_file: Name | None = Field(None, description="the same with validation; null: a tenth of train")
    shares: Shares | None = Field(
        None, description=f"the shares of train, validation and test where none is given; null: {list(SHARES)}"
    )
    shuffle: Flag | None = Field(
        None,
        description="whether vectors or events are shuffled by a fixed seed before they are split; null: images alone",
    )
    step: Step = Field(None, description=f"the lattice step: {STEP}; null: 1 of 8-bit pixels, else detect")
    noise: StatedNoise = Field(None, description=f"{WIDTH}: {NOISE}")

    @field_validator("*")
    @classmethod
    def _has_a_meaning(cls, value: Any, info: ValidationInfo) -> Any:
        for other in cls.alone.get(str(info.field_name), ()):
            if value and info.data.get(other):
                raise PydanticCustomError("way", "should be left out with {other}", {"other": other})
        return value

    @field_validator("validation_file")
    @classmethod
    def _beside_test(cls, file: str | None, info: ValidationInfo) -> str | None:
        if file is not None and info.data.get("test_file") is None:
            raise PydanticCustomError("file", "should come with test_file")
        return file


class ArrayOptions(FileOptions):
    """The file, the contents of its arrays, and how much of it is used."""

    alone = FileOptions.alone | {"arrays": ("groups", "stratify", "test_file", "array")}

    array: Name | None = Field(
        None, description="the one array of events, which `shares` split; null: x_train and x_test, x, or the only one"
    )
    arrays: Annotated[Annotated[tuple[Name, ...], Field(min_length=2, max_length=3)] | None, Once] = Field(
        None, description="the names of the arrays of train and test events, or of train, validation and test events"
    )
    kind: Literal["image", "sequence"] = Field("image", description="what an event is: image or sequence")
    shape: tuple[Count, ...] = Field(
        description="the event shape, channels first: [C, H, W] of an image, [C, T] of a sequence; after pooling"
    )
    layout: Literal["channels_first", "channels_last"] = Field(
        "channels_first",
        description="how events lie in the file; with one channel they may also come without a channel axis",
    )
    missing: Literal["refuse", "drop"] = Field(
        "refuse", description="events with NaN, such as windows with missing samples: refuse the file, or drop them"
    )
    pool: Count = Field(1, description="the side of the squares of pixels that are averaged and rounded")
    train: Count | None = Field(None, description="the number of train events that are used; null: all")
    validation: Count | None = Field(
        None, description="the number of validation events; null: all of x_val, or without one a tenth of x_train"
    )
    test: Count | None = Field(None, description="the number of test events that are used; null: all")

    @field_validator("shape")
    @classmethod
    def _axes(cls, shape: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        kind = info.data.get("kind", "image")
        axes = 3 if kind == "image" else 2
        if len(shape) != axes:
            raise PydanticCustomError("shape", f"should have {axes} entries for kind: {kind}")
        return shape

    @field_validator("pool")
    @classmethod
    def _of_images(cls, value: int, info: ValidationInfo) -> int:
        if info.data.get("kind") == "sequence" and value != 1:
            raise PydanticCustomError("kind", "should be left out: it is for kind: image")
        return value

    @property
    def shuffled(self) -> bool:
        """True if events are shuffled before they are split."""
        return self.kind == "image" if self.shuffle is None else self.shuffle

    def stored(self) -> list[tuple[int, ...]]:
        """Return the shapes that one event may have in the file."""
        channels, *spatial = self.shape
        axes = tuple(side * self.pool for side in spatial)
        whole = (channels, *axes) if self.layout == "channels_first" else (*axes, channels)
        if axes == (1,):  # vectors, often the rows of a matrix
            return [whole, (channels,)]
        return [whole, axes] if channels == 1 else [whole]


class CsvOptions(FileOptions):
    """The file, its columns, and the rows of an event."""

    alone = FileOptions.alone | {"split": ("groups", "stratify", "test_file", "shuffle")}

    columns: Annotated[Annotated[tuple[Name | Count, ...], Field(min_length=1)] | Count | None, Once] = Field(
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
    noise: Noise = Field(None, description=WIDTH_OR_DIGIT)

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
