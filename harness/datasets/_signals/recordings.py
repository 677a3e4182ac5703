"""Convert WFDB records to prepared windows, for every set of recordings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np

from harness.core.errors import DataError, DataMissing, UserError
from harness.core.settings import NewSplit
from harness.datasets._signals.recording_options import RecordingOptions
from harness.datasets._signals.waveform_filters import band_pass, flat_line_shares, flat_peak_shares, spread_over_cells
from harness.datasets._signals.wfdb_records import Locate, Recording, Stretch, read_recording, record_files
from harness.datasets._signals.windows import described_ring, fill_windows, samples, split_in_time, split_ring, starts
from harness.datasets._store.store import Store, Writer, prepare, split_key
from harness.datasets._values.lattice import Lattice
from harness.datasets.base import Splits

VERSION = 4  # of the prepared arrays
MOST_UNUSED = 0.05  # share of the records of which nothing may be used, unless the suite allows it
NAMED = 5  # records that a message names

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
    records = [record_files(name, record, locate, options.channels) for record, locate in sources]
    key = {"version": VERSION, **options.model_dump(mode="json"), **split_key(new)}
    headers = Counter(segment.header.path.resolve() for record in records for segment in record.segments)
    for header, count in headers.items():
        if count > 1:
            raise DataError(f"{name}: {header}: is read {count} times, by records that share it; name each record once")
    files = list(dict.fromkeys(path for record in records for path in record.files))

    def build(writer: Writer) -> None:
        recording = read_recording(name, records, options.channels, options.average_frames)
        where = ", ".join(str(record.header.path) for record in records)
        unused = _unused(name, recording, len(records), options)
        dropped, test_share = _write(writer, recording, options, new, f"{name}: {where}")
        writer.notes = {
            "description": _description(title, recording, dropped, options, new),
            "test_share": test_share,
            "left_out": unused,
            "steps": [list(step) for step in recording.steps],
            "lattices": [
                # A band-pass removes the offset of a channel.
                astuple(replace(lattice, offset=0.0) if channel in options.filtered else lattice)
                for channel, lattice in zip(options.channels, recording.lattices, strict=True)
            ],
        }

    prepared = prepare(store, name, key, files, build)
    return Splits.of(
        prepared,
        levels=None,
        description=prepared.notes["description"],
        lattice=options.band_pass is None,
        steps=tuple((size, unit) for size, unit in prepared.notes["steps"]),
        lattices=tuple(Lattice(*noted) for noted in prepared.notes["lattices"]),
        no_floor=_no_floor(options),
        test_share=prepared.notes.get("test_share"),
        left_out=tuple(prepared.notes["left_out"]),
    )


def _unused(name: str, recording: Recording, count: int, options: RecordingOptions) -> list[str]:
    """Return a clause on the records of which nothing is used; raise DataError if they are many and not allowed."""
    if not recording.unused:
        return []
    others = len(recording.unused) - NAMED
    named = ", ".join(path.stem for path in recording.unused[:NAMED]) + f" and {others} more" * (others > 0)
    text = f"{len(recording.unused)} of {count} records ({named}) are not used: their gains or baselines are others"
    if len(recording.unused) > MOST_UNUSED * count and not options.leave_out_records:
        raise DataError(
            f"{name}: {text} than those of most samples, which are taken as one lattice. Name the records of each gain "
            "as a data set of its own, or say leave_out_records: true to use those of the commonest gain alone"
        )
    return [text]


def _write(
    writer: Writer, recording: Recording, options: RecordingOptions, new: NewSplit | None, where: str
) -> tuple[Counter[str], float | None]:
    """Cut, clean and write the three splits; return how many windows were dropped, by reason, and the test share."""
    rate, band = recording.rate, options.band_pass
    if band is not None and band[1] >= rate / 2:
        raise UserError(
            f"{where}: sampled at {rate:g} Hz, so a band-pass ends below {rate / 2:g} Hz; band_pass is {list(band)}"
        )
    cutting = (recording.stretches, options.validation, options.test, round(options.gap_seconds * rate))
    parts, test_share = (split_in_time(*cutting), None) if new is None else split_ring(*cutting, new)
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
    kind = np.result_type(*(stretch.values for stretch in recording.stretches)) if band is None else np.float32
    for part, cut in cuts.items():
        target = writer.create(part, (counts[part], len(options.channels), options.length), kind)
        offset = 0
        for stretch, begins in cut:
            fill_windows(target[offset : offset + len(begins)], _filtered(stretch, rate, options), begins)
            offset += len(begins)
    return dropped, test_share


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


def _description(
    title: str, recording: Recording, dropped: Counter[str], options: RecordingOptions, new: NewSplit | None
) -> str:
    rate = recording.rate
    if options.train_stride < options.length:
        overlap = f"training windows begin every {options.train_stride} samples and overlap, held-out windows do not"
    else:
        spacing = "" if options.train_stride == options.length else f", training windows every {options.train_stride}"
        overlap = f"windows do not overlap{spacing}"
    means = ", means over frames" * options.average_frames
    parts = [
        f"{title}: {' and '.join(options.channels)} at {rate:g} Hz{means}, {samples(recording.stretches) / rate:.1f} s",
        f"windows of {options.length} samples, split in time with {options.gap_seconds:g} s between the splits",
        overlap,
        *([] if new is None else [described_ring(new)]),
    ]
    left_out = {
        "with an invalid sample": recording.invalid,
        "with other gains or baselines than most": recording.rescaled,
    }
    parts += [f"left out: {number / rate:.2f} s {what}" for what, number in left_out.items() if number]
    parts += [f"dropped: {number:,} {reason}" for reason, number in dropped.items()]
    return "; ".join(parts)
