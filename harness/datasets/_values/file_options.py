"""Options that all files of users share: further files of test and validation, and the ways to state a split."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from harness.core.settings import Count, Settings

Name = Annotated[str, Field(min_length=1, strict=True)]


class FileOptions(Settings):
    """The files, and the labels by which their events are split.

    Attributes:
        ways: options of which one alone decides on the split.
    """

    ways: ClassVar[tuple[str, ...]] = ("groups", "stratify", "test_file")

    file: Name = Field(description="the file, beside the suite, in the data root or by an absolute path")
    test_file: Name | None = Field(
        None, description="a file of the same form whose events are test; `file` is then train"
    )
    validation_file: Name | None = Field(None, description="the same with validation; null: a tenth of train")
    groups: Name | Count | None = Field(
        None,
        description="the column or the array, such as of subjects, whose events of one value stay in one split, and "
        "between which no window runs; null: events are split in order, or shuffled",
    )
    stratify: Name | Count | None = Field(
        None, description="the column or the array of classes of which all splits have the same shares"
    )

    @field_validator("*")
    @classmethod
    def _one_way(cls, value: Any, info: ValidationInfo) -> Any:
        if value and info.field_name in cls.ways:
            for other in cls.ways:
                if info.data.get(other):
                    raise PydanticCustomError("way", "should be left out with {other}", {"other": other})
        return value

    @field_validator("validation_file")
    @classmethod
    def _beside_test(cls, file: str | None, info: ValidationInfo) -> str | None:
        if file is not None and info.data.get("test_file") is None:
            raise PydanticCustomError("file", "should come with test_file")
        return file
