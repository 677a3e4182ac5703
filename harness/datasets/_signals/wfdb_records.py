"""WFDB records, of one segment or many, read as integers of the converter into stretches without a hole.

A record in several segments (as in MIMIC-III) is a master header, a layout that lists every signal, segments that
each hold the signals recorded at the time, and gaps. Only segments with all the wanted channels are read. Where
a sample of **any** channel is invalid (the lowest value of its format), the row of all channels is dropped and
the recording splits there: channels stay aligned, and no window bridges a hole.

The library wfdb parses headers and samples. As it takes only the beginning of a number, such as 1.25 of `1.25e2`, and
200 for a gain of 0, headers are refused whose rate, length or gain it would misread.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import DataError
from harness.core.files import read_text
from harness.datasets._signals.windows import Stretch, samples, stretches_of
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
    content: Any  # wfdb's Record or MultiRecord
    gains: tuple[float, ...]  # of the signals, as they are written

    @property
    def names(self) -> list[str | None]:
        """The names of the signals that have samples; None where the header gives none, or no samples."""
        named = zip(self.content.sig_name or (), getattr(self.content, "file_name", None) or (), strict=False)
        return [None if file == NO_DATA else name for name, file in named]

    @property
    def segments(self) -> list[tuple[str, int]]:
        """(name, frames) in the order of time; "~" is a gap. A first one of no frames is the layout of all signals."""
        return list(zip(getattr(self.content, "seg_name", ()), getattr(self.content, "seg_len", ()), strict=True))


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
    headers: tuple[Header, ...]  # of the segments
    segments: tuple[Segment, ...]  # those with all the wanted channels, in the order of time

    @property
    def files(self) -> list[Path]:
        """All files that are needed to read these segments, headers first."""
        headers = [self.header.path, *(header.path for header in self.headers)]
        return list(dict.fromkeys([*headers, *(path for segment in self.segments for path in segment.files)]))


@dataclass(frozen=True)
class Recording:
    """One or more records, one after another in time."""

    stretches: tuple[Stretch, ...]  # in the order of time, not empty
    places: tuple[tuple[int, Scale], ...]  # of each stretch, the number of its record, and its scale
    rate: float  # samples per second
    length: int  # of the whole in samples, holes included
    invalid: int  # samples that were dropped because a channel had none
    rescaled: int  # samples that were dropped because their segment has other gains than most
    unused: tuple[int, ...] = ()  # numbers of the records of which no sample is left for that reason

    @property
    def steps(self) -> tuple[tuple[float, str], ...]:
        """The size of one converter unit of each channel, and the physical unit; of the first stretch."""
        return tuple((1 / abs(gain), unit) for gain, _, unit in self.places[0][1])

    @property
    def lattices(self) -> tuple[Lattice, ...]:
        """The physical values of the converter units of each channel; of the first stretch."""
        return tuple(Lattice(-zero / gain, 1 / gain, STATED_ERROR / abs(gain)) for gain, zero, _ in self.places[0][1])


def read_header(name: str, path: Path) -> Header:
    """Read a header file of the data set `name`.

    Raises:
        DataError: it cannot be read, is not a WFDB header, or is one that wfdb would misread.
    """
    from wfdb import MultiRecord, rdheader

    where = f"{name}: {path}"
    try:
        lines = [line.split() for line in read_text(path).splitlines()]  # first: wfdb would read a file without end
        content = rdheader(str(path.with_suffix("")))
    except OSError as error:
        raise DataError(f"{where}: cannot be read ({error.strerror or error})") from error
    except Exception as error:  # the parser may raise anything on another file
        raise DataError(f"{where}: not a WFDB header ({type(error).__name__}: {error})") from error
    first, *lines = [fields for fields in lines if fields and not fields[0].startswith("#")]
    several = isinstance(content, MultiRecord)
    announced, kind = (content.n_seg, "segments") if several else (content.n_sig, "signals")
    parts = (content.seg_name if several else content.file_name) or []
    if not announced == len(parts) == len(lines):
        raise DataError(f"{where}: announces {announced} {kind} and describes {len(parts)}; get the file anew")
    stated = first[2].partition("/")[0] if len(first) > 2 else str(content.fs)  # RATE[/COUNTER[(BASE)]]
    if not content.fs > 0 or _NUMBER.fullmatch(stated) is None or float(stated) != content.fs:
        raise DataError(
            f"{where}: a sampling rate of {stated[:40]}; it must be a number above 0 without an exponent, such as 125 "
            "or 62.5: correct the header"
        )
    if len(first) > 3 and first[3] != str(content.sig_len):
        raise DataError(
            f"{where}: a length of {first[3][:40]}; it must be a whole number of samples behind a rate such as 125 or "
            "125/500(0): correct the header, or leave the length out if it is unknown"
        )
    stated_gains = [] if several else [fields[2] if len(fields) > 2 else DEFAULT_GAIN for fields in lines]
    numbers = [_NUMBER.match(text) for text in stated_gains]
    if None in numbers:
        text = stated_gains[numbers.index(None)]
        raise DataError(f"{where}: the gain {text[:40]} is no number, such as 200/mV: correct the header")
    return Header(path, content, tuple(float(number[0]) for number in numbers if number is not None))


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
    parts, start = [] if master.segments else [(0, master.content.sig_len, master)], 0
    for number, (segment, frames) in enumerate(master.segments):
        if segment != NO_DATA and (number or frames):
            header = read_header(name, locate(f"{segment}.hea"))
            content = header.content
            if header.segments:
                raise DataError(f"{name}: {header.path}: a segment that consists of segments; {master.path} names it")
            if content.fs != master.content.fs or content.sig_len not in (None, frames):
                raise DataError(
                    f"{name}: {header.path}: {content.sig_len} samples at {content.fs:g} Hz, but {master.path} says "
                    f"{frames} at {master.content.fs:g} Hz; they must agree"
                )
            parts.append((start, frames, header))
        start += frames
    chosen = []
    for start, frames, header in parts:
        places = [_places(header.names, channel) for channel in channels]
        for channel, at in zip(channels, places, strict=True):
            if len(at) > 1:
                raise DataError(
                    f"{name}: {header.path}: two signals are called {channel}; which of them is meant is unknown"
                )
        if all(places):
            chosen.append((header, tuple(place for (place,) in places), start, frames))
    headers = tuple(header for _, _, header in parts)
    if not chosen:
        there = sorted({signal for header in headers for signal in header.names if signal is not None})
        raise LackingChannels(
            f"{name}: {master.path}: no segment of the record has {' and '.join(channels)} together; its signals are "
            f"{', '.join(there) or 'without names'}"
        )
    segments = [
        Segment(header, places, tuple(map(locate, dict.fromkeys(header.content.file_name[at] for at in places))), *time)
        for header, places, *time in chosen
    ]
    return RecordFiles(master, headers, tuple(segments))


def _places(names: Sequence[str | None], channel: str) -> list[int]:
    """Return the places of the signals of this name, or without such signals, of this name in another case."""
    exact = [place for place, name in enumerate(names) if name == channel]
    return exact or [place for place, name in enumerate(names) if name is not None and name.lower() == channel.lower()]


def read_recording(
    name: str, records: Sequence[RecordFiles], channels: Sequence[str], all_gains: bool = False
) -> Recording:
    """Read the stretches of some records, which follow one another in time.

    One converter step has to have one size in all the data, or no resolution floor could be stated: among segments
    with different gains or baselines, those are kept that share the pair with the most valid samples, unless each may
    have its own.

    Raises:
        DataError: samples are damaged or all invalid, or sampling rates differ.
    """
    pieces: list[tuple[Stretch, tuple[int, Scale]]] = []
    rates: dict[float, Path] = {}
    offset = invalid = 0
    for number, record in enumerate(records):
        for segment in record.segments:
            path, per_frame = segment.header.path, _per_frame(name, segment, channels)
            rates.setdefault(segment.header.content.fs * per_frame, path)
            if len(rates) > 1:
                (rate, first), (different, second) = rates.items()
                raise DataError(
                    f"{name}: {second}: sampled at {different:g} Hz, but {first} at {rate:g} Hz; rates must be equal: "
                    "name the `records` of one rate"
                )
            values, valid, scale = _read_segment(name, segment, channels)
            start = offset + segment.start * per_frame
            invalid += int((~valid).sum())
            pieces += [(stretch, (number, scale)) for stretch in stretches_of(values, valid, start)]
            end = start + values.shape[1]
        length = record.header.content.sig_len
        offset = end if length is None else offset + length * per_frame
    durations: Counter[Scale] = Counter()
    for stretch, (_, scale) in pieces:
        durations[scale] += stretch.values.shape[1]
    if not pieces:
        paths = ", ".join(str(record.header.path) for record in records)
        raise DataError(f"{name}: {paths}: every sample of {' or '.join(channels)} is invalid; nothing is left")
    [(usual, _)] = durations.most_common(1)
    stretches, places = zip(*(piece for piece in pieces if all_gains or piece[1][1] == usual), strict=True)
    unused = {number for _, (number, _) in pieces} - {number for number, _ in places}
    dropped = durations.total() - samples(stretches)
    return Recording(stretches, places, next(iter(rates)), offset, invalid, dropped, tuple(sorted(unused)))


def _per_frame(name: str, segment: Segment, channels: Sequence[str]) -> int:
    """Return samples per frame, which must be the same for all channels."""
    content = segment.header.content
    counts = [content.samps_per_frame[place] for place in segment.signals]
    if len(set(counts)) > 1:
        rates = [f"{channel} at {count * content.fs:g} Hz" for channel, count in zip(channels, counts, strict=True)]
        hint = "name the `channels` of one rate"
        raise DataError(f"{name}: {segment.header.path}: {', '.join(rates)}; rates must be equal: {hint}")
    return counts[0]


def _read_segment(name: str, segment: Segment, channels: Sequence[str]) -> tuple[np.ndarray, np.ndarray, Scale]:
    """Return values (C, n), a mask of the valid rows among the n, and the scale."""
    from wfdb import rdrecord

    header, content, where = segment.header, segment.header.content, f"{name}: {segment.header.path}"
    if content.sig_len == 0:
        raise DataError(f"{where}: announces no samples; leave the length out of its first line if it is unknown")
    for channel, place in zip(channels, segment.signals, strict=True):
        if (kind := content.fmt[place]) not in BITS:
            why = "marks no invalid samples" if kind == "8" else "cannot be read"
            raise DataError(
                f"{where}: {channel} is in format {kind}, which {why}; formats that can be read: {', '.join(BITS)}"
            )
        gain = header.gains[place]
        if not (math.isfinite(gain) and gain and math.isfinite(1 / gain)):
            raise DataError(
                f"{where}: {channel} has the gain {gain:g}, so its values have no unit; a gain is a "
                "finite number of converter units per physical unit, not 0, such as 200/mV: correct the header"
            )
    files = f"{name}: {', '.join(map(str, segment.files))}"
    try:
        # Not smoothed: an average over a frame is not a value of the converter.
        options = {"physical": False, "smooth_frames": False, "return_res": 32}
        record = rdrecord(str(header.path.with_suffix("")), channels=list(segment.signals), **options)
        rows = np.stack(record.e_d_signal)
    except Exception as error:  # a decoder may raise anything on a damaged file
        size = sum(path.stat().st_size for path in segment.files if path.exists())
        raise DataError(
            f"{files}: {size:,} bytes that cannot be read as the samples that {header.path} describes "
            f"({type(error).__name__}: {error}); a file may be cut short"
        ) from error
    frames, names = rows.shape[1] // record.samps_per_frame[0], [content.sig_name[place] for place in segment.signals]
    if record.sig_name != names or segment.frames not in (None, frames):
        raise DataError(
            f"{files}: {frames} frames of {record.sig_name}; {header.path} announces {segment.frames} of {names}"
        )
    for channel, row, stated, skew in zip(channels, rows, record.checksum, record.skew, strict=True):
        if stated is not None and not skew and (int(row.sum(dtype=np.int64)) - stated) % 65536:
            raise DataError(
                f"{files}: the samples of {channel} do not add up to the checksum {stated} of {header.path}: a file is "
                "damaged; get it anew"
            )
    bits = np.array([BITS[content.fmt[place]] for place in segment.signals])
    valid = (rows != -(1 << (bits - 1))[:, None]).all(axis=0)
    scale = tuple(
        (float(gain), int(baseline), str(unit))
        for gain, baseline, unit in zip(record.adc_gain, record.baseline, record.units, strict=True)
    )
    return rows.astype(np.int16 if bits.max() <= 16 else np.int32), valid, scale
