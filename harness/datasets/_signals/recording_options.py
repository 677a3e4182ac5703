"""Options of a set of recordings: the windows, their split in time, and their cleaning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from harness.core.settings import Count, Flag, Settings

Channel = Annotated[str, Field(min_length=1, strict=True)]
Fraction = Annotated[float, Field(gt=0, lt=1, strict=True)]
Share = Annotated[float, Field(gt=0, le=1, strict=True)]
Hertz = Annotated[float, Field(gt=0)]

_BELONGS_TO = {
    "flat_line_samples": "flat_lines",
    "flat_peak_samples": "flat_peaks",
    "band_pass_order": "band_pass",
    "band_pass_channels": "band_pass",
}


class RecordingOptions(Settings):
    """Options of the windows, their split in time, and their cleaning (none by default)."""

    channels: Annotated[tuple[Channel, ...], Field(min_length=1)] = Field(
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
    validation: Fraction = Field(0.1, description="the fraction of the valid samples, before test, for validation")
    test: Fraction = Field(0.1, description="the fraction of the valid samples, the last, for test")
    gap_seconds: Annotated[float, Field(ge=0, strict=True)] = Field(
        30.0, description="seconds of the recording that are left out before validation and before test"
    )
    average_frames: Flag = Field(
        False,
        description="whether a value is the mean over a frame, so that signals of several rates get the rate of frames",
    )
    leave_out_records: Flag = Field(
        False,
        description="whether more than a twentieth of the records may be left out, for other gains than those of most "
        "or as they lack a channel",
    )
    flat_lines: Share | None = Field(
        None, description="drop windows with a larger share of samples in flat lines (0.05 in the source); null: keep"
    )
    flat_line_samples: Annotated[int, Field(ge=2, strict=True)] = Field(
        15, description="the number of equal samples that make a flat line"
    )
    flat_peaks: Share | None = Field(
        None,
        description="drop windows in which this share of peaks or valleys is flat (0.05 in the source); null: keep",
    )
    flat_peak_samples: Annotated[int, Field(ge=2, strict=True)] = Field(
        5, description="the number of equal samples that make a peak flat"
    )
    band_pass: tuple[Hertz, Hertz] | None = Field(
        None,
        description="the edges of a band-pass in Hz, forward and backward ([0.5, 8] in the source); null: no filter",
    )
    band_pass_order: Annotated[int, Field(ge=1, le=10, strict=True)] = Field(
        4, description="the order of the Butterworth low-pass that the band-pass is made from"
    )
    band_pass_channels: tuple[Channel, ...] = Field(
        (), description="the channels that are filtered ([PLETH] in the source); none named: all"
    )
    seed: Annotated[int, Field(ge=0, strict=True)] = Field(
        0, description="the seed of the noise of physical, standardised and filtered values"
    )

    @field_validator("channels")
    @classmethod
    def _once(cls, channels: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(channels)) < len(channels):
            raise PydanticCustomError("channels", "names a channel twice")
        return channels

    @field_validator("test")
    @classmethod
    def _leaves_a_rest(cls, test: float, info: ValidationInfo) -> float:
        if test + info.data.get("validation", 0) >= 1:
            raise PydanticCustomError("test", "leaves nothing to train on beside validation")
        return test

    @field_validator("band_pass")
    @classmethod
    def _rises(cls, band: tuple[float, float] | None) -> tuple[float, float] | None:
        if band is not None and band[0] >= band[1]:
            raise PydanticCustomError("band_pass", "should name the lower edge first")
        return band

    @field_validator("values")
    @classmethod
    def _of_whole_records(cls, values: str, info: ValidationInfo) -> str:
        if values != "counts" and info.data.get("split") == "time":
            raise PydanticCustomError("values", "should be counts, or come with split: record or folder")
        return values

    @field_validator("average_frames", "band_pass")
    @classmethod
    def _of_counts(cls, value: Any, info: ValidationInfo) -> Any:
        if value and info.data.get("values") != "counts":
            raise PydanticCustomError("values", "should be left out, or come with values: counts")
        return value

    @field_validator(*_BELONGS_TO)
    @classmethod
    def _has_an_effect(cls, value: Any, info: ValidationInfo) -> Any:
        switch = _BELONGS_TO[str(info.field_name)]
        if info.data.get(switch, False) is None:
            raise PydanticCustomError("effect", "has no effect without {switch}", {"switch": switch})
        return value

    @field_validator("seed")
    @classmethod
    def _draws(cls, seed: int, info: ValidationInfo) -> int:
        if info.data.get("values") == "counts" and info.data.get("band_pass") is None:
            raise PydanticCustomError("effect", "has no effect without values: physical or standardised, or band_pass")
        return seed

    @field_validator("band_pass_channels")
    @classmethod
    def _are_there(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if set(names) - set(info.data.get("channels", names)):
            raise PydanticCustomError("band_pass_channels", "should name channels of the event")
        return names

    @property
    def shape(self) -> tuple[int, int]:
        """The event shape, (channels, length)."""
        return (len(self.channels), self.length)

    @property
    def train_stride(self) -> int:
        """Samples from one training window to the next."""
        return self.stride or self.length

    @property
    def filtered(self) -> tuple[str, ...]:
        """The channels that are filtered."""
        return () if self.band_pass is None else self.band_pass_channels or self.channels
