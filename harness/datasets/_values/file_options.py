"""Options that all files of users share: their values, and the ways to state a split."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from harness.core.settings import Count, Flag, Settings
from harness.datasets._store.selection import SHARES, Shares
from harness.datasets._values.widths import NOISE, STEP, WIDTH, Noise, Step

Name = Annotated[str, Field(min_length=1, strict=True)]


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
    test_file: Name | None = Field(
        None, description="a file of the same form whose events are test; `file` is then train"
    )
    validation_file: Name | None = Field(None, description="the same with validation; null: a tenth of train")
    shares: Shares | None = Field(
        None, description=f"the shares of train, validation and test where none is given; null: {list(SHARES)}"
    )
    shuffle: Flag | None = Field(
        None,
        description="whether vectors or events are shuffled by a fixed seed before they are split; null: images alone",
    )
    step: Step = Field(
        None, description=f"the lattice step of the values: {STEP}; null: 1 of 8-bit pixels, else detect"
    )
    noise: Noise = Field(None, description=f"{WIDTH}: {NOISE}")

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
