"""Options of published sets of images, whose validation is a part of the training images, chosen by a fixed seed."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from harness.core.settings import Count, Settings

VERSION = 3  # of the prepared arrays

Validation = Annotated[Count, Field(description="the number of training images that are set apart for validation")]
Test = Annotated[Count, Field(description="the number of test images that are used")]


class SplitSizes(Settings):
    """The number of images in each split.

    Attributes:
        counts: images of train and test, where they are known before the files are.
    """

    counts: ClassVar[tuple[int, int] | None] = None

    validation: Validation
    train: Count | None = Field(None, description="the number of the other training images that are used; null: all")
    test: Count | None = Field(None, description="the number of test images that are used; null: all")

    @field_validator("validation", "train", "test")
    @classmethod
    def _at_most_all(cls, value: int | None, info: ValidationInfo) -> int | None:
        if cls.counts is not None and value is not None:
            train, test = cls.counts
            limits = {"validation": train - 1, "train": train - info.data.get("validation", 0), "test": test}
            if value > (most := limits[str(info.field_name)]):
                raise PydanticCustomError("sizes", "should be at most {most}", {"most": most})
        return value

    @property
    def limits(self) -> tuple[int | None, int, int | None]:
        """The numbers of train, validation and test images."""
        return self.train, self.validation, self.test
