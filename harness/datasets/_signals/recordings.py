"""Convert WFDB records to prepared windows, for every set of recordings, by options that they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from harness.core.errors import DataError, DataMissing
from harness.core.settings import Count, Flag, NewSplit, Settings
from harness.core.texts import first_few
from harness.datasets._signals.wfdb_records import (
    LackingChannels,
    Locate,
    RecordFiles,
    Recording,
    read_recording,
    record_files,
)
from harness.datasets._signals.windows import (
    FLAT_LINE,
    Stretch,
    described_ring,
    fill_windows,
    flat_line_shares,
    samples,
    split_in_time,
    spread_over_cells,
    starts,
)
from harness.datasets._store.selection import SPLITS, Share, split_groups
from harness.datasets._store.store import Store, Writer, prepare, split_key
from harness.datasets._values.file_options import Name, Once
from harness.datasets.base import Splits

VERSION = 8  # of the prepared arrays
MOST_UNUSED = 0.05  # share of the records of which nothing may be used, unless the suite allows it
NAMED = 5  # records that a message names
GAINS = "their gains or baselines are others than those of most"
SHORT = "they have no window's length of valid samples"
STANDARDISED = "likelihoods are those of the standardised values: no log-determinant of this scaling is counted"
VOLTS = {"V": 1.0, "mV": 1e-3, "uV": 1e-6, "µV": 1e-6}

Cut = list[tuple[Stretch, np.ndarray]]
"""The stretches of a split, each with the starts of its windows."""

Source = tuple[str, Locate]
"""The name of a record, without folder or ending, and the function that finds or downloads one of its files."""


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
        description="drop windows with a larger share of samples in runs of 15 equal ones or more; null: keep",
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


def in_folder(name: str, folder: Path) -> Locate:
    """Return a function that locates the files of a record in a folder, and raises DataMissing for a missing one."""

    def locate(file: str) -> Path:
        path = folder / file
        if not path.is_file():
            raise DataMissing(f"{name}: {path}: no such file; a record is its .hea files and the .dat files they name")
        return path

    return locate


def recording_splits(
    store: Store,
    name: str,
    sources: Sequence[Source],
    options: RecordingOptions,
    title: str,
    new: NewSplit | None = None,
) -> Splits:
    """Return the splits of some records, prepared on the first call and then mapped from the cache.

    The records follow one another in time; `title` begins the description. A new split is cut from them anew, see
    `harness.datasets._signals.windows`.

    Raises:
        DataMissing: a file is missing and cannot be downloaded.
        DataError: a file is damaged, or the recording is too short for these options.
    """
    records, lacking = [], []
    for record, locate in sources:
        try:
            records.append(record_files(name, record, locate, options.channels))
        except LackingChannels:
            lacking.append(record)
            if len(lacking) == len(sources):
                raise
    headers = Counter(segment.header.path.resolve() for record in records for segment in record.segments)
    for header, count in headers.items():
        if count > 1:
            raise DataError(f"{name}: {header}: is read {count} times, by records that share it; name each record once")
    files = list(dict.fromkeys(path for record in records for path in record.files))

    def build(writer: Writer) -> None:
        recording = read_recording(name, records, options.channels, options.values != "counts")
        wanted = {channel.lower() for channel in options.channels}
        headers = [header for record in records for header in (record.header, *record.headers)]
        signals = dict.fromkeys(name for header in headers for name in header.names if name is not None)
        further = [name for name in signals if name.lower() not in wanted]
        others = [records[number].header.path.stem for number in recording.unused]
        apart = f"no part has {' and '.join(options.channels)} together"
        unused = [f"signals that are not used: {first_few(further, NAMED)}"] * bool(further)
        for left, why in ((others, GAINS), (lacking, apart), (_short(recording, records, options), SHORT)):
            unused += _unused(name, left, len(sources), options, why)
        where = f"{name}: {first_few([str(record.header.path) for record in records], NAMED)}"
        cuts, dropped, test_share, text = _cut(recording, records, options, new, where)
        counted = options.values == "counts"
        writer.notes = {
            "levels": None,
            "description": _description(title, recording, dropped, options, text),
            "test_share": test_share,
            "lattice": counted,
            "log_widths": _write(writer, recording, cuts, options, where),
            "left_out": unused,
            **({"steps": recording.steps, "lattices": recording.lattices} if counted else {}),
        }

    key = {"version": VERSION, **options.model_dump(mode="json"), **split_key(new)}
    return Splits.of(prepare(store, name, key, files, build))


def _short(recording: Recording, records: Sequence[RecordFiles], options: RecordingOptions) -> list[str]:
    """Return the names of the records that are too short for a window, where splits are of whole records."""
    longest: Counter[int] = Counter()
    for stretch, (number, _) in zip(recording.stretches, recording.places, strict=True):
        longest[number] = max(longest[number], stretch.values.shape[1])
    short = [records[number].header.path.stem for number, count in longest.items() if count < options.length]
    return short if options.split != "time" else []


def _unused(name: str, unused: list[str], count: int, options: RecordingOptions, reason: str) -> list[str]:
    """Return a clause on the records of which nothing is used; raise DataError if they are many and not allowed."""
    text = f"{len(unused)} of {count} records ({first_few(unused, NAMED)}) are not used: {reason}"
    if len(unused) > MOST_UNUSED * count and not options.leave_out_records:
        hint = "; values: physical with split: record uses records of all gains in physical units"
        raise DataError(
            f"{name}: {text}. Say leave_out_records: true to use the others alone{hint * (reason == GAINS)}",
            {"values": "physical", "split": "record"} if reason == GAINS else None,
        )
    return [text] * bool(unused)


def _cut(
    recording: Recording, records: Sequence[RecordFiles], options: RecordingOptions, new: NewSplit | None, where: str
) -> tuple[dict[str, Cut], str, float | None, str]:
    """Return the windows of each split, a clause on the dropped ones, the test share, and a clause on the split."""
    rate = recording.rate
    if options.split == "time":
        cutting = (recording.stretches, options.validation, options.test, round(options.gap_seconds * rate))
        parts, test_share = split_in_time(*cutting, new)
        text = f"split in time with {options.gap_seconds:g} s between the splits"
        text += "" if new is None else f"; {described_ring(new)}"
    else:
        parts, test_share, text = _whole(recording, records, options, new, where)
    cuts: dict[str, Cut] = {part: [] for part in parts}
    flat = 0
    for part, stretches in parts.items():
        for stretch in stretches:
            begins = starts(stretch, options.length, options.train_stride if part == "train" else options.length)
            if options.flat_lines is not None and len(begins):
                kept = flat_line_shares(stretch.values, begins, options.length) <= options.flat_lines
                flat += int((~kept).sum())
                begins = begins[kept]
            cuts[part].append((stretch, begins))
    dropped = ""
    if options.flat_lines is not None:
        lines = f"flat lines of {FLAT_LINE} samples or more"
        dropped = f"dropped: {flat:,} windows with more than {options.flat_lines:g} of a channel in {lines}"
    counts = {part: sum(len(begins) for _, begins in cut) for part, cut in cuts.items()}
    if not all(counts.values()):
        windows = [f"{counts[part]} {part} windows from {samples(each) / rate:.1f} s" for part, each in parts.items()]
        raise DataError(
            f"{where}: too little for windows of {options.length} samples ({options.length / rate:.1f} s): "
            f"{'; '.join([', '.join(windows), *[dropped] * bool(dropped)])}. Take a shorter length or gap_seconds, "
            "other fractions, or a longer recording"
        )
    return cuts, dropped, test_share, text


def _write(
    writer: Writer, recording: Recording, cuts: dict[str, Cut], options: RecordingOptions, where: str
) -> list[float] | None:
    """Write the windows of the splits; return the mean logarithm of the steps of each, unless values are counts."""
    counted = options.values == "counts"
    kinds = {stretch.values.dtype for stretch in recording.stretches} if counted else {np.dtype(np.float64)}
    units = {} if counted else _units(recording, options, where)
    log_widths = []
    for part, cut in cuts.items():
        count, logs = sum(len(begins) for _, begins in cut), 0.0
        target = writer.create(part, (count, *options.shape), np.result_type(*kinds))
        for stretch, begins in cut:
            values = stretch.values
            if not counted:
                zeros, steps = units[stretch.start]
                values = (spread_over_cells(values, stretch.start) - zeros) * steps
                logs += float(np.log(np.abs(steps)).mean()) * len(begins)
            fill_windows(target, [(values, begins)])
            target = target[len(begins) :]
        log_widths.append(logs / count)
    return None if counted else log_widths


def _whole(
    recording: Recording, records: Sequence[RecordFiles], options: RecordingOptions, new: NewSplit | None, where: str
) -> tuple[dict[str, tuple[Stretch, ...]], float, str]:
    """Return the stretches of each split, of whole records or folders; the share of test; a clause on the split."""
    paths = [records[number].header.path for number, _ in recording.places]
    owners = np.array([str(path.parent if options.split == "folder" else path) for path in paths])
    counts = np.array([len(starts(stretch, options.length, options.length)) for stretch in recording.stretches])
    shares = (1 - options.validation - options.test, options.validation, options.test)
    numbers = np.repeat(np.arange(len(counts)), counts)  # of the stretch of each window
    groups = np.unique(owners[numbers], return_inverse=True)[1]
    of_windows, text = split_groups(where, groups, shares, new)
    parts = {
        name: tuple(recording.stretches[number] for number in np.unique(numbers[of_windows == place]))
        for place, name in enumerate(SPLITS)
    }
    share = float((of_windows == SPLITS.index("test")).mean())
    return parts, share, f"train, validation and test are {text}, each of one {options.split}"


def _units(recording: Recording, options: RecordingOptions, where: str) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return the count that stands for 0, and the value of one count, (C, 1), by the starts of the stretches.

    They are in the physical units of the first record, or in deviations of each record from its mean.
    """
    by_record: dict[int, list[Stretch]] = {}
    units: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    standardised = options.values == "standardised"
    for stretch, (record, scale) in zip(recording.stretches, recording.places, strict=True):
        gains, zeros, names = zip(*scale, strict=True)
        factors = []
        for channel, unit, (_, wanted) in zip(options.channels, names, recording.steps, strict=True):
            agree = unit == wanted or standardised
            if not agree and not {unit, wanted} <= VOLTS.keys():
                raise DataError(
                    f"{where}: {channel} is in {unit} in one record and in {wanted} in another; units must agree: "
                    "leave such records out of `records`, or say values: standardised"
                )
            factors.append(1.0 if agree else VOLTS[unit] / VOLTS[wanted])
        units[stretch.start] = np.array(zeros)[:, None], (np.array(factors) / gains)[:, None]
        by_record.setdefault(record, []).append(stretch)
    for of_record in by_record.values() if standardised else ():
        scaled = [(each, *units[each.start]) for each in of_record]
        values = np.concatenate([(each.values - zero) * step for each, zero, step in scaled], axis=1)
        mean, deviation = values.mean(axis=1, keepdims=True), values.std(axis=1, keepdims=True)
        if not deviation.all():
            channel = options.channels[int(deviation.argmin())]
            raise DataError(
                f"{where}: {channel} has one value in a record, which has no deviation; leave the record out"
            )
        units |= {each.start: (zero + mean / step, step / deviation) for each, zero, step in scaled}
    return units


def _description(title: str, recording: Recording, dropped: str, options: RecordingOptions, split: str) -> str:
    rate, stride = recording.rate, options.train_stride
    overlap = "windows do not overlap" + f", training windows every {stride}" * (stride > options.length)
    if stride < options.length:
        overlap = f"training windows begin every {stride} samples and overlap, held-out windows do not"
    parts = [
        f"{title}: {' and '.join(options.channels)} at {rate:g} Hz, {samples(recording.stretches) / rate:.1f} s",
        f"windows of {options.length} samples, {split}",
        overlap,
    ]
    if options.values != "counts":
        names = ", ".join(dict.fromkeys(unit for _, unit in recording.steps))
        own = f"less the mean of its record, in units of its deviation ({STANDARDISED})"
        unit = f"in physical units ({names})" if options.values == "physical" else own
        parts.append(f"values {unit}; noise of the step of its record is added to each once")
    reasons = ("with an invalid sample", "with other gains or baselines than most")
    left_out = zip((recording.invalid, recording.rescaled), reasons, strict=True)
    parts += [f"left out: {number / rate:.2f} s {what}" for number, what in left_out if number]
    return "; ".join([*parts, *[dropped] * bool(dropped)])
