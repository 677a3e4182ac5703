"""Options of an .npz file: its arrays, and what they hold."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from harness.core.settings import Count
from harness.datasets._values.file_options import FileOptions, Name
from harness.datasets._values.widths import NOISE, WIDTH, StatedNoise


class ArrayOptions(FileOptions):
    """The file, the contents of its arrays, and how much of it is used."""

    alone = FileOptions.alone | {"arrays": ("groups", "stratify", "test_file", "array")}

    array: Name | None = Field(
        None, description="the one array of events, which `shares` split; null: x_train and x_test, x, or the only one"
    )
    arrays: Annotated[tuple[Name, ...], Field(min_length=2, max_length=3)] | None = Field(
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
    noise: StatedNoise = Field(None, description=f"{WIDTH}: {NOISE}")
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

    @field_validator("arrays")
    @classmethod
    def _of_splits(cls, arrays: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if arrays is not None and len({*arrays}) < len(arrays):
            raise PydanticCustomError("arrays", "should be different names")
        return arrays

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
