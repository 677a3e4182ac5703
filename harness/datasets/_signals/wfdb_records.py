"""WFDB records, of one segment or many, read as integers of the converter into stretches without a hole.

A record in several segments (as in MIMIC-III) is a master header, a layout that lists every signal, segments that
each hold the signals recorded at the time, and gaps. Only segments with all the wanted channels are read. Where
a sample of **any** channel is invalid (the lowest value of its format), the row of all channels is dropped and
the recording splits there: channels stay aligned, and no window bridges a hole.

The library wfdb reads headers. As it takes only the beginning of a number, such as 1.25 of `1.25e2`, and 200 for a gain
of 0, the sampling rate, the length and the gains are compared with their texts.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.core.errors import DataError
from harness.core.files import read_text
from harness.datasets._signals.windows import Stretch, stretches_of
from harness.datasets._values.lattice import STATED_ERROR, Lattice

NO_DATA = "~"  # in place of a file or a segment
DEFAULT_GAIN = "200"  # of a header that states none, by the rules of WFDB
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")

Locate = Callable[[str], Path]
"""Function from the name of a record's file to its path; raises DataMissing if it is missing."""

Scale = tuple[tuple[float, int, str], ...]
"""For each channel: converter units per physical unit, the value of physical zero, and the unit's name."""

# Bits of a sample, by the format's number: the lowest value marks a missing sample. Format 8 stores
# differences and has no such value; wfdb does not read format 61.
BITS = {"16": 16, "24": 24, "32": 32, "80": 8, "160": 16, "212": 12, "310": 10, "311": 10}
BITS |= {"508": 8, "516": 16, "524": 24}


@dataclass(frozen=True)
class Header:
    """A header: of signals or, for a record in several segments, of segments."""

    path: Path
    rate: float  # frames per second
    length: int | None  # frames; None if the size of the files determines it
    names: tuple[str | None, ...] = ()  # of the signals, such as "PLETH"; None where the header gives none
    files: tuple[str, ...] = ()  # of the signals' samples, in the header's folder, or "~" for none
    per_frame: tuple[int, ...] = ()  # samples per frame of the signals
    gains: tuple[float, ...] = ()  # of the signals, in converter units per physical unit
    # (name, frames) in the order of time; "~" is a gap. A first one of no frames is the layout, with all signals.
    segments: tuple[tuple[str, int], ...] = ()
    formats: tuple[str, ...] = ()  # of the signals' samples, by WFDB's numbers


@dataclass(frozen=True)
class Segment:
    """A segment that has all the wanted channels."""

    header: Header
    signals: tuple[int, ...]  # the wanted channels' places among the header's signals
    files: tuple[Path, ...]  # of their samples
    start: int  # frames since the record began
    frames: int | None  # None if the size of the files determines it


@dataclass(frozen=True)
class RecordFiles:
    """A record as described by its headers."""

    header: Header  # of the record
    segments: tuple[Segment, ...]  # those with all the wanted channels, in the order of time
    files: tuple[Path, ...]  # all that are needed to read these segments, headers first


@dataclass(frozen=True)
class Recording:
    """One or more records, one after another in time."""

    stretches: tuple[Stretch, ...]  # in the order of time, not empty
    places: tuple[tuple[int, Scale], ...]  # of each stretch, the number of its record, and its scale
    rate: float  # samples per second
    steps: tuple[tuple[float, str], ...]  # of each channel, the size of one converter unit and the physical unit
    lattices: tuple[Lattice, ...]  # of each channel, the physical values of converter units
    length: int  # of the whole in samples, holes included
    invalid: int  # samples that were dropped because a channel had none
    rescaled: int  # samples that were dropped because their segment has other gains than most
    unused: tuple[Path, ...] = ()  # headers of the records of which no sample is left for that reason


def read_header(name: str, path: Path) -> Header:
    """Read a header file of the data set `name`.

    Raises:
        DataError: it cannot be read, or is not a WFDB header.
    """
    from wfdb import MultiRecord, rdheader

    where = f"{name}: {path}"
    try:
        lines = [line.split() for line in read_text(path).splitlines()]  # first: wfdb would read a file without end
        header = rdheader(str(path.with_suffix("")))
    except OSError as error:
        raise DataError(f"{where}: cannot be read ({error.strerror or error})") from error
    except Exception as error:  # the parser may raise anything on another file
        raise DataError(f"{where}: not a WFDB header ({type(error).__name__}: {error})") from error
    first, *lines = [fields for fields in lines if fields and not fields[0].startswith("#")]
    several = isinstance(header, MultiRecord)
    kind, announced, parts = (
        ("segments", header.n_seg, header.seg_name) if several else ("signals", header.n_sig, header.file_name or [])
    )
    if announced != len(parts):
        raise DataError(f"{where}: announces {announced} {kind} and describes {len(parts)}; get the file anew")
    _check_first_line(where, first, header.fs, header.sig_len)
    rate, length = float(header.fs), header.sig_len
    if several:
        [(segment, count)] = Counter(part for part in parts if part != NO_DATA).most_common(1) or [("", 0)]
        if count > 1:
            raise DataError(f"{where}: names the segment {segment} {count} times; get the file anew")
        return Header(path, rate, length, segments=tuple(zip(parts, header.seg_len, strict=True)))
    if not parts:
        return Header(path, rate, length)
    if len(lines) != len(parts):
        raise DataError(f"{where}: describes {len(parts)} signals on {len(lines)} lines; get the file anew")
    gains = tuple(_gain(where, fields) for fields in lines)
    names, frames, formats = map(tuple, (header.sig_name, header.samps_per_frame, header.fmt))
    return Header(path, rate, length, names, tuple(parts), frames, gains, formats=formats)


def _check_first_line(where: str, fields: list[str], rate: float, length: int | None) -> None:
    """Raise DataError unless the first line states this rate (RATE[/COUNTER[(BASE)]]) and length, as wfdb has read."""
    stated = fields[2].partition("/")[0] if len(fields) > 2 else None
    number = None if stated is None else _NUMBER.fullmatch(stated)
    if not rate > 0 or (stated is not None and (number is None or float(stated) != rate)):
        raise DataError(
            f"{where}: a sampling rate of {(stated or '')[:40]}; it must be a number above 0 without an exponent, such "
            "as 125 or 62.5: correct the header"
        )
    if len(fields) > 3 and fields[3] != str(length):
        raise DataError(
            f"{where}: a length of {fields[3][:40]}; it must be a whole number of samples behind a rate such as 125 or "
            "125/500(0): correct the header, or leave the length out if it is unknown"
        )


def _gain(where: str, fields: list[str]) -> float:
    """Return the gain that a line of a signal states."""
    text = fields[2] if len(fields) > 2 else DEFAULT_GAIN
    if (number := _NUMBER.match(text)) is None:
        rule = "is no gain; it begins with a number, such as 200/mV: correct the header"
        raise DataError(f"{where}: {text[:40]!r} {rule}")
    return float(number[0])


class LackingChannels(DataError):
    """No segment of a record has all channels."""


def record_files(name: str, record: str, locate: Locate, channels: Sequence[str]) -> RecordFiles:
    """Find the files of a record that have to be read; request the headers first, then the necessary samples.

    A channel may be named in another case than in the header.

    Raises:
        DataMissing: a file is missing.
        LackingChannels: no segment has all channels.
        DataError: a header is damaged.
    """
    master = read_header(name, locate(f"{record}.hea"))
    parts = list(_segment_headers(name, master, locate, channels)) if master.segments else [(0, master.length, master)]
    chosen, seen = [], set()
    for start, frames, header in parts:
        names = [signal if file != NO_DATA else None for signal, file in zip(header.names, header.files, strict=True)]
        seen |= {signal for signal in names if signal is not None}
        places = [_places(names, channel) for channel in channels]
        for channel, at in zip(channels, places, strict=True):
            if len(at) > 1:
                raise DataError(
                    f"{name}: {header.path}: two signals are called {channel}; which of them is meant is unknown"
                )
        if all(places):
            chosen.append((start, frames, header, tuple(place for (place,) in places)))
    if not chosen:
        raise _lacking(name, master.path, channels, seen)
    segments = []
    for start, frames, header, signals in chosen:
        files = dict.fromkeys(header.files[place] for place in signals)
        segments.append(Segment(header, signals, tuple(map(locate, files)), start, frames))
    headers = [master.path, *(header.path for _, _, header in parts)]
    samples = [path for segment in segments for path in segment.files]
    return RecordFiles(master, tuple(segments), tuple(dict.fromkeys([*headers, *samples])))


def _places(names: Sequence[str | None], channel: str) -> list[int]:
    """Return the places of the signals of this name, or, if there is none, of this name in another case."""
    exact = [place for place, name in enumerate(names) if name == channel]
    return exact or [place for place, name in enumerate(names) if name is not None and name.lower() == channel.lower()]


def _segment_headers(
    name: str, master: Header, locate: Locate, channels: Sequence[str]
) -> Iterator[tuple[int, int, Header]]:
    """Yield (start, frames, header) of each segment that holds anything, the layout left out."""
    start = 0
    for number, (segment, frames) in enumerate(master.segments):
        if segment == NO_DATA:
            start += frames
            continue
        header = read_header(name, locate(f"{segment}.hea"))
        if header.segments:
            raise DataError(f"{name}: {header.path}: a segment that consists of segments; {master.path} names it")
        if number == 0 and frames == 0:  # the layout: it spares the segments where a channel is nowhere
            if not all(_places(header.names, channel) for channel in channels):
                raise _lacking(name, header.path, channels, {signal for signal in header.names if signal is not None})
            continue
        if header.rate != master.rate or header.length not in (None, frames):
            raise DataError(
                f"{name}: {header.path}: {header.length} samples at {header.rate:g} Hz, but {master.path} says "
                f"{frames} at {master.rate:g} Hz; they must agree"
            )
        yield start, frames, header
        start += frames


def _lacking(name: str, path: Path, channels: Sequence[str], there: set[str]) -> LackingChannels:
    wanted = " and ".join(channels)
    return LackingChannels(
        f"{name}: {path}: no segment of the record has {wanted}{' together' if len(channels) > 1 else ''}; "
        f"its signals are {', '.join(sorted(there)) or 'without names'}"
    )


def read_recording(
    name: str, records: Sequence[RecordFiles], channels: Sequence[str], average: bool = False, all_gains: bool = False
) -> Recording:
    """Read the stretches of some records, which follow one another in time.

    `average` takes the mean of the samples in each frame, so that signals of several rates get that of the frames. Its
    lattice is as much finer as a frame has samples.

    One converter step has to have one size in all the data, or no resolution floor could be stated: among segments
    with different gains or baselines, those are kept that share the pair with the most valid samples, unless each may
    have its own.

    Raises:
        DataError: samples are damaged or all invalid, or sampling rates differ.
    """
    scaled: list[tuple[Scale, list[Stretch], int]] = []
    rates: dict[float, Path] = {}
    offset = invalid = 0
    for number, record in enumerate(records):
        for segment in record.segments:
            path, per_frame = segment.header.path, 1 if average else _per_frame(name, segment, channels)
            rates.setdefault(segment.header.rate * per_frame, path)
            if len(rates) > 1:
                (rate, first), (different, second) = rates.items()
                raise DataError(
                    f"{name}: {second}: sampled at {different:g} Hz, but {first} at {rate:g} Hz; rates must be equal: "
                    "name the `records` of one rate"
                )
            values, valid, scale = _read_segment(name, segment, channels, average)
            start = offset + segment.start * per_frame
            invalid += int((~valid).sum())
            scaled.append((scale, list(stretches_of(values, valid, start)), number))
            end = start + values.shape[1]
        length = record.header.length
        offset = end if length is None else offset + length * per_frame
    durations: Counter[Scale] = Counter()
    for scale, stretches, _ in scaled:
        durations[scale] += sum(stretch.values.shape[1] for stretch in stretches)
    usual, kept = durations.most_common(1)[0]
    if kept == 0:
        paths = ", ".join(str(record.header.path) for record in records)
        raise DataError(f"{name}: {paths}: every sample of {' or '.join(channels)} is invalid; nothing is left")
    if all_gains:
        kept = durations.total()
    chosen = [(stretch, number, scale) for scale, stretches, number in scaled for stretch in stretches]
    chosen = [each for each in chosen if all_gains or each[2] == usual]
    used = {number for _, number, _ in chosen}
    unused = dict.fromkeys(number for _, stretches, number in scaled if stretches and number not in used)
    return Recording(
        stretches=tuple(stretch for stretch, _, _ in chosen),
        places=tuple((number, scale) for _, number, scale in chosen),
        rate=next(iter(rates)),
        steps=tuple((1 / abs(gain), unit) for gain, _, unit in usual),
        lattices=tuple(Lattice(-zero / gain, 1 / gain, STATED_ERROR / abs(gain)) for gain, zero, _ in usual),
        length=offset,
        invalid=invalid,
        rescaled=durations.total() - kept,
        unused=tuple(records[number].header.path for number in unused),
    )


def _per_frame(name: str, segment: Segment, channels: Sequence[str]) -> int:
    """Return samples per frame, which must be the same for all channels."""
    counts = [segment.header.per_frame[place] for place in segment.signals]
    if len(set(counts)) > 1:
        rates = ", ".join(
            f"{channel} at {count * segment.header.rate:g} Hz" for channel, count in zip(channels, counts, strict=True)
        )
        hint = "say average_frames: true to read all at the rate of frames"
        raise DataError(f"{name}: {segment.header.path}: {rates}; rates must be equal, or {hint}")
    return counts[0]


def _read_segment(
    name: str, segment: Segment, channels: Sequence[str], average: bool
) -> tuple[np.ndarray, np.ndarray, Scale]:
    """Return values (C, n), a mask of the valid rows among the n, and the scale."""
    from wfdb import rdrecord

    header, where = segment.header, f"{name}: {segment.header.path}"
    if header.length == 0:
        raise DataError(f"{where}: announces no samples; leave the length out of its first line if it is unknown")
    bits = []
    for channel, place in zip(channels, segment.signals, strict=True):
        if (kind := header.formats[place]) not in BITS:
            why = "marks no invalid samples" if kind == "8" else "cannot be read"
            raise DataError(
                f"{where}: {channel} is in format {kind}, which {why}; formats that can be read: {', '.join(BITS)}"
            )
        bits.append(BITS[kind])
        gain = header.gains[place]
        if not (math.isfinite(gain) and gain and math.isfinite(1 / gain)):
            raise DataError(
                f"{where}: {channel} has the gain {gain:g}, so its values have no unit; a gain is a finite number of "
                "converter units per physical unit, not 0: correct the header"
            )
    files = f"{name}: {', '.join(map(str, segment.files))}"
    try:
        # Not smoothed: an average over a frame is not a value of the converter.
        options = {"physical": False, "smooth_frames": False, "return_res": 32}
        record = rdrecord(str(header.path.with_suffix("")), channels=list(segment.signals), **options)
        samples = list(record.e_d_signal)
    except Exception as error:  # a decoder may raise anything on a damaged file
        size = sum(path.stat().st_size for path in segment.files if path.exists())
        raise DataError(
            f"{files}: {size:,} bytes that cannot be read as the samples that {header.path} describes "
            f"({type(error).__name__}: {error}); a file may be cut short"
        ) from error
    counts = [header.per_frame[place] for place in segment.signals]
    frames = len(samples[0]) // counts[0]
    names = [header.names[place] for place in segment.signals]
    if record.sig_name != names or segment.frames not in (None, frames):
        raise DataError(
            f"{files}: {frames} frames of {record.sig_name}; {header.path} announces {segment.frames} of {names}"
        )
    for channel, row, stated, skew in zip(channels, samples, record.checksum, record.skew, strict=True):
        if stated is not None and not skew and (int(row.sum(dtype=np.int64)) - stated) % 65536:
            raise DataError(
                f"{files}: the samples of {channel} do not add up to the checksum {stated} of {header.path}: a file is "
                "damaged; get it anew"
            )
    if not average:
        counts = [1] * len(counts)
    cut = [row.reshape(-1, count) for row, count in zip(samples, counts, strict=True)]
    valid = np.all([(row != -(2 ** (width - 1))).all(1) for row, width in zip(cut, bits, strict=True)], axis=0)
    values = np.stack([row.sum(1, dtype=np.int64) for row in cut])
    largest = max(width + (count - 1).bit_length() for width, count in zip(bits, counts, strict=True))
    scale = tuple(
        (float(gain) * count, int(baseline) * count, str(unit))
        for gain, baseline, unit, count in zip(record.adc_gain, record.baseline, record.units, counts, strict=True)
    )
    return values.astype(np.int16 if largest <= 16 else np.int32 if largest <= 32 else np.int64), valid, scale
