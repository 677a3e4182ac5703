"""Convert WFDB records to prepared windows, for every set of recordings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.core.errors import DataError, DataMissing, UserError
from harness.core.settings import NewSplit
from harness.datasets._signals.recording_options import RecordingOptions
from harness.datasets._signals.waveform_filters import band_pass, flat_line_shares, flat_peak_shares, spread_over_cells
from harness.datasets._signals.wfdb_records import (
    LackingChannels,
    Locate,
    RecordFiles,
    Recording,
    read_recording,
    record_files,
)
from harness.datasets._signals.windows import (
    Stretch,
    described_ring,
    fill_windows,
    samples,
    split_in_time,
    split_ring,
    starts,
)
from harness.datasets._store.selection import SPLITS, split_groups
from harness.datasets._store.store import Store, Writer, prepare, split_key
from harness.datasets.base import Splits

VERSION = 7  # of the prepared arrays
MOST_UNUSED = 0.05  # share of the records of which nothing may be used, unless the suite allows it
NAMED = 5  # records that a message names
SHORT = "they have no window's length of valid samples"
STANDARDISED = "likelihoods are those of the standardised values: no log-determinant of this scaling is counted"
VOLTS = {"V": 1.0, "mV": 1e-3, "uV": 1e-6, "µV": 1e-6}

Cuts = dict[str, list[tuple[Stretch, np.ndarray]]]
"""Split -> its stretches, each with the starts of its windows."""

Source = tuple[str, Locate]
"""The name of a record, without folder or ending, and the function that finds or downloads one of its files."""


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
        UserError: the band-pass does not fit the sampling rate.
    """
    records, lacking = [], []
    for record, locate in sources:
        try:
            records.append(record_files(name, record, locate, options.channels))
        except LackingChannels as error:
            if len(sources) == 1:
                raise
            lacking.append(record)
            reason = error
    if not records:
        raise reason
    key = {"version": VERSION, **options.model_dump(mode="json"), **split_key(new)}
    headers = Counter(segment.header.path.resolve() for record in records for segment in record.segments)
    for header, count in headers.items():
        if count > 1:
            raise DataError(f"{name}: {header}: is read {count} times, by records that share it; name each record once")
    files = list(dict.fromkeys(path for record in records for path in record.files))

    def build(writer: Writer) -> None:
        recording = read_recording(name, records, options.channels, options.average_frames, options.values != "counts")
        where = f"{name}: {_listed([str(record.header.path) for record in records])}"
        others = [path.stem for path in recording.unused]
        wanted = {channel.lower() for channel in options.channels}
        headers = [
            header for record in records for header in (record.header, *(each.header for each in record.segments))
        ]
        signals = dict.fromkeys(name for header in headers for name in header.names if name is not None)
        further = [name for name in signals if name.lower() not in wanted]
        unused = [
            *[f"signals that are not used: {_listed(further)}"] * bool(further),
            *_unused(name, others, len(sources), options, "their gains or baselines are others than those of most"),
            *_unused(name, lacking, len(sources), options, f"no part has {' and '.join(options.channels)} together"),
            *_unused(name, _short(recording, records, options), len(sources), options, SHORT),
        ]
        dropped, test_share, text, log_widths = _write(writer, recording, records, options, new, where)
        writer.notes = {
            "levels": None,
            "description": _description(title, recording, dropped, options, text),
            "test_share": test_share,
            "lattice": options.band_pass is None and options.values == "counts",
            "log_widths": log_widths,
            "no_floor": _no_floor(options),
            "left_out": unused,
        }
        if options.values == "counts":
            writer.notes["steps"] = recording.steps
            writer.notes["lattices"] = [
                # A band-pass removes the offset of a channel.
                replace(lattice, offset=0.0) if channel in options.filtered else lattice
                for channel, lattice in zip(options.channels, recording.lattices, strict=True)
            ]

    return Splits.of(prepare(store, name, key, files, build))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + f" and {len(names) - NAMED} more" * (len(names) > NAMED)


def _short(recording: Recording, records: Sequence[RecordFiles], options: RecordingOptions) -> list[str]:
    """Return the names of the records that are too short for a window, where splits are of whole records."""
    if options.split == "time":
        return []
    longest = dict.fromkeys((number for number, _ in recording.places), 0)
    for stretch, (number, _) in zip(recording.stretches, recording.places, strict=True):
        longest[number] = max(longest[number], stretch.values.shape[1])
    return [records[number].header.path.stem for number, count in longest.items() if count < options.length]


def _unused(name: str, unused: list[str], count: int, options: RecordingOptions, reason: str) -> list[str]:
    """Return a clause on the records of which nothing is used; raise DataError if they are many and not allowed."""
    if not unused:
        return []
    text = f"{len(unused)} of {count} records ({_listed(unused)}) are not used: {reason}"
    if len(unused) > MOST_UNUSED * count and not options.leave_out_records:
        raise DataError(
            f"{name}: {text}. Say leave_out_records: true to use the others alone"
            + "; values: physical with split: record uses records of all gains in physical units" * ("gains" in reason),
            {"values": "physical", "split": "record"} if "gains" in reason else None,
        )
    return [text]


def _write(
    writer: Writer,
    recording: Recording,
    records: Sequence[RecordFiles],
    options: RecordingOptions,
    new: NewSplit | None,
    where: str,
) -> tuple[Counter[str], float | None, str, list[float] | None]:
    """Cut, clean and write the three splits.

    Returns:
        How many windows were dropped, by reason; the test share; a clause on the split; unless values are counts, the
        mean logarithm of the steps of each split.
    """
    rate, band = recording.rate, options.band_pass
    if band is not None and band[1] >= rate / 2:
        raise UserError(
            f"{where}: sampled at {rate:g} Hz, so a band-pass ends below {rate / 2:g} Hz; band_pass is {list(band)}"
        )
    if options.split == "time":
        cutting = (recording.stretches, options.validation, options.test, round(options.gap_seconds * rate))
        parts, test_share = (split_in_time(*cutting), None) if new is None else split_ring(*cutting, new)
        text = f"split in time with {options.gap_seconds:g} s between the splits"
        text += "" if new is None else f"; {described_ring(new)}"
    else:
        parts, test_share, text = _whole(recording, records, options, new, where)
    cuts: Cuts = {}
    dropped: Counter[str] = Counter()  # with 0 for reasons that were checked but did not occur
    for part, stretches in parts.items():
        stride = options.train_stride if part == "train" else options.length
        cut = [(stretch, starts(stretch, options.length, stride)) for stretch in stretches]
        cuts[part] = [(stretch, _kept(stretch, begins, options, dropped)) for stretch, begins in cut if len(begins)]
    counts = {part: sum(len(begins) for _, begins in cut) for part, cut in cuts.items()}
    if not all(counts.values()):
        windows = ", ".join(
            f"{counts[part]} {part} windows from {samples(stretches) / rate:.1f} s" for part, stretches in parts.items()
        )
        cleaned = "".join(f"; dropped {number} {reason}" for reason, number in dropped.items())
        raise DataError(
            f"{where}: too little for windows of {options.length} samples ({options.length / rate:.1f} s): "
            f"{windows}{cleaned}. Take a shorter length or gap_seconds, other fractions, or a longer recording"
        )
    counted = options.values == "counts"
    kinds = [stretch.values.dtype for stretch in recording.stretches]
    kind = np.dtype(np.float64) if not counted else np.dtype(np.float32) if band is not None else np.result_type(*kinds)
    used = [stretch for cut in cuts.values() for stretch, _ in cut]
    units = {} if counted else _units(recording, used, options, where)
    log_widths = []
    for part, cut in cuts.items():
        target = writer.create(part, (counts[part], len(options.channels), options.length), kind)
        offset, logs = 0, 0.0
        for stretch, begins in cut:
            values = _filtered(stretch, rate, options)
            if not counted:
                zeros, steps = units[stretch.start]
                values = (spread_over_cells(stretch.values, options.seed, stretch.start) - zeros) * steps
                logs += float(np.log(np.abs(steps)).mean()) * len(begins)
            fill_windows(target[offset : offset + len(begins)], values, begins)
            offset += len(begins)
        log_widths.append(logs / counts[part])
    return dropped, test_share, text, None if counted else log_widths


def _whole(
    recording: Recording, records: Sequence[RecordFiles], options: RecordingOptions, new: NewSplit | None, where: str
) -> tuple[dict[str, tuple[Stretch, ...]], float | None, str]:
    """Return the stretches of each split, of whole records or folders; the share of test; a clause on the split."""
    keys = [record.header.path.parent if options.split == "folder" else record.header.path for record in records]
    counts = [len(starts(stretch, options.length, options.length)) for stretch in recording.stretches]
    owners = np.unique([str(keys[number]) for number, _ in recording.places], return_inverse=True)[1]
    shares = (1 - options.validation - options.test, options.validation, options.test)
    used = np.flatnonzero(counts)
    groups = np.unique(np.repeat(owners[used], np.array(counts)[used]), return_inverse=True)[1]
    of_windows, share, text = split_groups(where, groups, shares, new)
    split = dict(zip(used.tolist(), of_windows[np.cumsum([0, *np.array(counts)[used]])[:-1]].tolist(), strict=True))
    parts = {
        name: tuple(recording.stretches[place] for place, of in split.items() if of == at)
        for at, name in enumerate(SPLITS)
    }
    return (
        parts,
        share,
        f"train, validation and test are {text}, each of one {options.split}",
    )


def _units(
    recording: Recording, stretches: Sequence[Stretch], options: RecordingOptions, where: str
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return the count that stands for 0, and the value of one count, (C, 1), by the starts of the used stretches.

    They are in the physical units of the first record, or in deviations of each record from its mean.
    """
    first = recording.places[0][1]
    by_record: dict[int, list[Stretch]] = {}
    units: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    used = {stretch.start for stretch in stretches}
    for stretch, (record, scale) in zip(recording.stretches, recording.places, strict=True):
        if stretch.start in used:
            gains, zeros, names = zip(*scale, strict=True)
            factors = []
            for channel, unit, (_, _, wanted) in zip(options.channels, names, first, strict=True):
                agree = unit == wanted or options.values == "standardised"
                if not agree and not {unit, wanted} <= VOLTS.keys():
                    raise DataError(
                        f"{where}: {channel} is in {unit} in one record and in {wanted} in another; units must agree: "
                        "leave such records out of `records`, or say values: standardised"
                    )
                factors.append(1.0 if agree else VOLTS[unit] / VOLTS[wanted])
            units[stretch.start] = np.array(zeros)[:, None], (np.array(factors) / gains)[:, None]
            by_record.setdefault(record, []).append(stretch)
    for of_record in by_record.values() if options.values == "standardised" else ():
        zeros, steps = zip(*(units[stretch.start] for stretch in of_record), strict=True)
        parts = [(each.values - zero) * step for each, zero, step in zip(of_record, zeros, steps, strict=True)]
        values = np.concatenate(parts, axis=1)
        mean, deviation = values.mean(axis=1, keepdims=True), values.std(axis=1, keepdims=True)
        if not deviation.all():
            channel = options.channels[int(deviation.argmin())]
            raise DataError(
                f"{where}: {channel} has one value in a record, which has no deviation; leave the record out"
            )
        for stretch, zero, step in zip(of_record, zeros, steps, strict=True):
            units[stretch.start] = zero + mean / step, step / deviation
    return units


def _kept(stretch: Stretch, begins: np.ndarray, options: RecordingOptions, dropped: Counter[str]) -> np.ndarray:
    """Return the windows that pass cleaning, and count the dropped ones."""
    if options.flat_lines is not None:
        run = options.flat_line_samples
        flat = flat_line_shares(stretch.values, begins, options.length, run) > options.flat_lines
        reason = f"windows with more than {options.flat_lines:g} of a channel in flat lines of {run} samples or more"
        dropped[reason] += int(flat.sum())
        begins = begins[~flat]
    if options.flat_peaks is not None:
        share, run = options.flat_peaks, options.flat_peak_samples
        flat = flat_peak_shares(stretch.values, begins, options.length, run) >= share
        reason = f"windows with {share:g} or more of a channel's peaks or valleys flat for {run} samples or more"
        dropped[reason] += int(flat.sum())
        begins = begins[~flat]
    return begins


def _filtered(stretch: Stretch, rate: float, options: RecordingOptions) -> np.ndarray:
    """Return the values of a stretch of one split alone: unchanged, or dequantised and then filtered."""
    if options.band_pass is None:
        return stretch.values
    values = spread_over_cells(stretch.values, options.seed, stretch.start)
    chosen = [options.channels.index(channel) for channel in options.filtered]
    values[chosen] = band_pass(values[chosen], rate, options.band_pass, options.band_pass_order)
    return values


def _no_floor(options: RecordingOptions) -> str | None:
    if options.band_pass is None:
        return None
    low, high = options.band_pass
    return (
        f"{' and '.join(options.filtered)} band-pass filtered after dequantisation (Butterworth, order "
        f"{options.band_pass_order}, {low:g} to {high:g} Hz, forward and backward), so that no floor can be stated; "
        "the numbers compare only under the same filter"
    )


def _description(title: str, recording: Recording, dropped: Counter[str], options: RecordingOptions, split: str) -> str:
    rate = recording.rate
    if options.train_stride < options.length:
        overlap = f"training windows begin every {options.train_stride} samples and overlap, held-out windows do not"
    else:
        spacing = "" if options.train_stride == options.length else f", training windows every {options.train_stride}"
        overlap = f"windows do not overlap{spacing}"
    means = ", means over frames" * options.average_frames
    parts = [
        f"{title}: {' and '.join(options.channels)} at {rate:g} Hz{means}, {samples(recording.stretches) / rate:.1f} s",
        f"windows of {options.length} samples, {split}",
        overlap,
    ]
    if options.values != "counts":
        names = ", ".join(dict.fromkeys(unit for _, _, unit in recording.places[0][1]))
        own = f"less the mean of its record, in units of its deviation ({STANDARDISED})"
        unit = f"in physical units ({names})" if options.values == "physical" else own
        parts.append(f"values {unit}; noise of the step of its record is added to each once")
    left_out = {
        "with an invalid sample": recording.invalid,
        "with other gains or baselines than most": recording.rescaled,
    }
    parts += [f"left out: {number / rate:.2f} s {what}" for what, number in left_out.items() if number]
    parts += [f"dropped: {number:,} {reason}" for reason, number in dropped.items()]
    return "; ".join(parts)
