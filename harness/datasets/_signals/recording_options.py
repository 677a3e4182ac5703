"""Options of a set of recordings: the windows, their split in time, and their cleaning."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from harness.core.settings import Count, Flag, Settings
from harness.datasets._store.selection import Share
from harness.datasets._values.file_options import Name, Once


class RecordingOptions(Settings):
    """Options of the windows, their split in time, and their cleaning (none by default)."""

    channels: Annotated[tuple[Name, ...], Field(min_length=1), Once] = Field(
        ("PLETH", "ABP"), description="the signals of an event, in this order, by their names in the header"
    )
    length: Annotated[int, Field(ge=16, le=65_536, strict=True)] = Field(
        1024, description="the number of samples of a window"
    )
    stride: Count | None = Field(
        None, description="samples from one training window to the next; null: the length, so that none overlap"
    )
    split: Literal["time", "record", "folder"] = Field(
        "time",
        description="time: the last samples are test; record, folder: whole records, or all records of a folder, such "
        "as of a subject, are drawn for validation and test",
    )
    values: Literal["counts", "physical", "standardised"] = Field(
        "counts",
        description="counts of the converter, of records of one gain; physical: in physical units, of records of all "
        "gains; standardised: less the mean of the record, in units of its deviation. Noise of the step of its record "
        "is added once to each value of the latter two",
    )
    validation: Share = Field(0.1, description="the fraction of the valid samples, before test, for validation")
    test: Share = Field(0.1, description="the fraction of the valid samples, the last, for test")
    gap_seconds: Annotated[float, Field(ge=0, strict=True)] = Field(
        30.0, description="seconds of the recording that are left out before validation and before test"
    )
    leave_out_records: Flag = Field(
        False,
        description="whether more than a twentieth of the records may be left out, for other gains than those of most "
        "or as they lack a channel",
    )
    flat_lines: Annotated[float, Field(gt=0, le=1, strict=True)] | None = Field(
        None,
        description="drop windows with a larger share of samples in runs of 15 or more equal ones, such as 0.05; null: "
        "keep",
    )

    @field_validator("test")
    @classmethod
    def _leaves_a_rest(cls, test: float, info: ValidationInfo) -> float:
        if test + info.data.get("validation", 0) >= 1:
            raise PydanticCustomError("test", "leaves nothing to train on beside validation")
        return test

    @field_validator("values")
    @classmethod
    def _of_whole_records(cls, values: str, info: ValidationInfo) -> str:
        if values != "counts" and info.data.get("split") == "time":
            raise PydanticCustomError("values", "should be counts, or come with split: record or folder")
        return values

    @property
    def shape(self) -> tuple[int, int]:
        """The event shape, (channels, length)."""
        return (len(self.channels), self.length)

    @property
    def train_stride(self) -> int:
        """Samples from one training window to the next."""
        return self.stride or self.length
