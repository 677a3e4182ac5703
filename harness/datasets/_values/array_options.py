"""Options of an .npz file: its arrays, what they hold, and their split."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from harness.core.settings import Count, Flag
from harness.datasets._store.selection import SHARES, Shares
from harness.datasets._values.file_options import FileOptions, Name
from harness.datasets._values.lattice import MOST_LEVELS
from harness.datasets._values.widths import NOISE, STEP, WIDTH, StatedNoise, Step, for_each_channel


class ArrayOptions(FileOptions):
    """The file, the contents of its arrays, and how much of it is used."""

    ways = (*FileOptions.ways, "arrays")

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
    levels: Annotated[int, Field(ge=2, le=MOST_LEVELS, strict=True)] | None = Field(
        None, description="the number of levels of an image's pixels; null: 256 of 8-bit pixels, else what occurs"
    )
    missing: Literal["refuse", "drop"] = Field(
        "refuse", description="events with NaN, such as windows with missing samples: refuse the file, or drop them"
    )
    step: Step = Field(
        None, description=f"the lattice step of the values: {STEP}; null: 1 of 8-bit pixels, else detect"
    )
    noise: StatedNoise = Field(None, description=f"{WIDTH}: {NOISE}")
    pool: Count = Field(1, description="the side of the squares of pixels that are averaged and rounded")
    train: Count | None = Field(None, description="the number of train events that are used; null: all")
    validation: Count | None = Field(
        None, description="the number of validation events; null: all of x_val, or without one a tenth of x_train"
    )
    test: Count | None = Field(None, description="the number of test events that are used; null: all")
    shares: Shares | None = Field(
        None,
        description=f"of a file with one array, the shares of train, validation and test; null: {list(SHARES)}",
    )
    shuffle: Flag | None = Field(
        None,
        description="whether events are shuffled by a fixed seed before they are split; null: images alone",
    )

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
    def _of_splits(cls, arrays: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        if arrays is not None and (info.data.get("array") is not None or len({*arrays}) < len(arrays)):
            raise PydanticCustomError("arrays", "should be different names, and be left out beside `array`")
        return arrays

    @field_validator("shares", "shuffle")
    @classmethod
    def _of_one_array(cls, value: Any, info: ValidationInfo) -> Any:
        others = ("test_file",) if info.field_name == "shares" else ("groups", "stratify")
        for other in others:
            if value is not None and info.data.get(other) is not None:
                raise PydanticCustomError("way", "should be left out with {other}", {"other": other})
        return value

    @field_validator("levels", "pool")
    @classmethod
    def _of_images(cls, value: int | None, info: ValidationInfo) -> int | None:
        if info.data.get("kind") == "sequence" and value not in (None, 1):
            raise PydanticCustomError("kind", "should be left out: it is for kind: image")
        return value

    @field_validator("step", "noise")
    @classmethod
    def _for_each_channel(cls, value: Any, info: ValidationInfo) -> Any:
        image = info.field_name == "step" and info.data.get("kind") == "image"
        return for_each_channel(value, info, 1 if image else info.data.get("shape", (1,))[0])

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
