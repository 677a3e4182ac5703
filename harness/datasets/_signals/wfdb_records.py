"""WFDB records, of one segment or many, read as integers of the converter into stretches without a hole.

A record in several segments (as in MIMIC-III) is a master header, a layout that lists every signal, segments that
each hold the signals recorded at the time, and gaps. Only segments with all the wanted channels are read. Where
a sample of **any** channel is invalid (the lowest value of its format), the row of all channels is dropped and
the recording splits there: channels stay aligned, and no window bridges a hole.
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
from harness.datasets._values.lattice import STATED_ERROR, Lattice

NO_DATA = "~"  # in place of a file or a segment

DEFAULT_GAIN = 200.0  # of a signal whose header states none, by the rules of WFDB
_GAIN = re.compile(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?")

Locate = Callable[[str], Path]
"""Function from the name of a record's file to its path; raises DataMissing if it is missing."""

Scale = tuple[tuple[float, int, str], ...]
"""For each channel: converter units per physical unit, the value of physical zero, and the unit's name."""

# Bits of a sample, by the format's number: the lowest value marks a missing sample. Format 8 stores
# differences and has no such value.
BITS = {"16": 16, "24": 24, "32": 32, "61": 16, "80": 8, "160": 16, "212": 12, "310": 10, "311": 10}
BITS |= {"508": 8, "516": 16, "524": 24}


@dataclass(frozen=True)
class Header:
    """A header: of signals or, for a record in several segments, of segments.

    Attributes:
        path: the file.
        rate: frames per second.
        length: frames; None if the size of the files determines it.
        names: of the signals, such as "PLETH"; None where the header gives none.
        files: of the signals' samples, in the header's folder, or "~" for none.
        per_frame: samples per frame of the signals.
        gains: of the signals, in converter units per physical unit.
        segments: (name, frames) in the order of time; "~" is a gap. A first segment of no frames is the layout,
            which lists every signal of the record.
    """

    path: Path
    rate: float
    length: int | None
    names: tuple[str | None, ...] = ()
    files: tuple[str, ...] = ()
    per_frame: tuple[int, ...] = ()
    gains: tuple[float, ...] = ()
    segments: tuple[tuple[str, int], ...] = ()


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

    header: Header  # the record's own
    segments: tuple[Segment, ...]  # those with all the wanted channels, in the order of time
    files: tuple[Path, ...]  # all that are needed to read these segments, headers first


@dataclass(frozen=True)
class Stretch:
    """Samples without a hole."""

    start: int  # sample number since the recording began; several records follow one another
    values: np.ndarray  # (C, n), integers of the converter

    @property
    def stop(self) -> int:
        """The sample number after the last."""
        return self.start + self.values.shape[1]


@dataclass(frozen=True)
class Recording:
    """One or more records, one after another in time."""

    stretches: tuple[Stretch, ...]  # in the order of time, not empty
    rate: float  # samples per second
    steps: tuple[tuple[float, str], ...]  # of each channel, the size of one converter unit and the physical unit
    lattices: tuple[Lattice, ...]  # of each channel, the physical values of converter units
    length: int  # of the whole in samples, holes included
    invalid: int  # samples that were dropped because a channel had none
    rescaled: int  # samples that were dropped because their segment has other gains than most


def read_header(name: str, path: Path) -> Header:
    """Read a header file of the data set `name`.

    Raises:
        DataError: it cannot be read, or is not a WFDB header.
    """
    from wfdb import MultiRecord, rdheader

    try:
        read_text(path)  # which wfdb would read whole, and a pipe without end
        found = rdheader(str(path.with_suffix("")))
    except OSError as error:
        raise DataError(f"{name}: {path}: cannot be read ({error.strerror or error})") from error
    except Exception as error:  # the parser may raise anything on another file
        raise DataError(f"{name}: {path}: not a WFDB header ({type(error).__name__}: {error})") from error
    several = isinstance(found, MultiRecord)
    kind, announced, parts = (
        ("segments", found.n_seg, found.seg_name) if several else ("signals", found.n_sig, found.file_name or [])
    )
    if announced != len(parts):
        raise DataError(f"{name}: {path}: announces {announced} {kind} and describes {len(parts)}; get the file anew")
    if not found.fs:
        raise DataError(f"{name}: {path}: a sampling rate of 0; it must be above 0")
    if several:
        segments = tuple(zip(found.seg_name, found.seg_len, strict=True))
        return Header(path, float(found.fs), found.sig_len, segments=segments)
    if not parts:
        return Header(path, float(found.fs), found.sig_len)
    signals = (tuple(found.sig_name), tuple(parts), tuple(found.samps_per_frame), _gains(name, path))
    if len(signals[-1]) != len(parts):
        raise DataError(
            f"{name}: {path}: describes {len(parts)} signals on {len(signals[-1])} lines; get the file anew"
        )
    return Header(path, float(found.fs), found.sig_len, *signals)


def _gains(name: str, path: Path) -> tuple[float, ...]:
    """Return the gains of the signals as the header states them; wfdb reads 0, uncalibrated, as `DEFAULT_GAIN`."""
    text = read_text(path)
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    gains = []
    for fields in lines[1:]:
        try:
            gains.append(float(_GAIN.match(fields[2])[0]) if len(fields) > 2 else DEFAULT_GAIN)  # type: ignore[index]
        except (TypeError, ValueError) as error:
            rule = "is no gain; it begins with a number, such as 200/mV: correct the header"
            raise DataError(f"{name}: {path}: {fields[2][:40]!r} {rule}") from error
    return tuple(gains)


def record_files(name: str, record: str, locate: Locate, channels: Sequence[str]) -> RecordFiles:
    """Find the files of a record that have to be read; request the headers first, then the necessary samples.

    Raises:
        DataMissing: a file is missing.
        DataError: a header is damaged, or no segment has all channels.
    """
    master = read_header(name, locate(f"{record}.hea"))
    parts = list(_segment_headers(name, master, locate, channels)) if master.segments else [(0, master.length, master)]
    chosen, seen = [], set()
    for start, frames, header in parts:
        names = [signal if file != NO_DATA else None for signal, file in zip(header.names, header.files, strict=True)]
        seen |= {signal for signal in names if signal is not None}
        twice = [channel for channel in channels if names.count(channel) > 1]
        if twice:
            raise DataError(
                f"{name}: {header.path}: two signals are called {twice[0]}; which of them is meant is unknown"
            )
        if all(channel in names for channel in channels):
            chosen.append((start, frames, header, tuple(names.index(channel) for channel in channels)))
    if not chosen:
        raise _lacking(name, master.path, channels, seen)
    segments = []
    for start, frames, header, places in chosen:
        files = dict.fromkeys(header.files[place] for place in places)
        segments.append(Segment(header, places, tuple(map(locate, files)), start, frames))
    headers = [master.path, *(header.path for _, _, header in parts)]
    samples = [path for segment in segments for path in segment.files]
    return RecordFiles(master, tuple(segments), tuple(dict.fromkeys([*headers, *samples])))


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
            if not set(header.names).issuperset(channels):
                raise _lacking(name, header.path, channels, {signal for signal in header.names if signal is not None})
            continue
        if header.rate != master.rate or header.length not in (None, frames):
            raise DataError(
                f"{name}: {header.path}: {header.length} samples at {header.rate:g} Hz, but {master.path} says "
                f"{frames} at {master.rate:g} Hz; they must agree"
            )
        yield start, frames, header
        start += frames


def _lacking(name: str, path: Path, channels: Sequence[str], there: set[str]) -> DataError:
    wanted = " and ".join(channels)
    return DataError(
        f"{name}: {path}: no segment of the record has {wanted}{' together' if len(channels) > 1 else ''}; "
        f"its signals are {', '.join(sorted(there)) or 'without names'}"
    )


def read_recording(name: str, records: Sequence[RecordFiles], channels: Sequence[str]) -> Recording:
    """Read the stretches of some records, which follow one another in time.

    One converter step has to have one size in all the data, or no resolution floor could be stated: among segments
    with different gains or baselines, those are kept that share the pair with the most valid samples.

    Raises:
        DataError: samples are damaged or all invalid, or sampling rates differ.
    """
    found: list[tuple[Scale, list[Stretch]]] = []
    rates: dict[float, Path] = {}
    offset = invalid = 0
    for record in records:
        for segment in record.segments:
            path, per_frame = segment.header.path, _per_frame(name, segment, channels)
            rates.setdefault(segment.header.rate * per_frame, path)
            if len(rates) > 1:
                (rate, first), (different, second) = rates.items()
                raise DataError(
                    f"{name}: {second}: sampled at {different:g} Hz, but {first} at {rate:g} Hz; rates must be equal"
                )
            values, valid, scale = _read_segment(name, segment, channels)
            start = offset + segment.start * per_frame
            invalid += int((~valid).sum())
            found.append((scale, list(_stretches(values, valid, start))))
            end = start + values.shape[1]
        length = record.header.length
        offset = end if length is None else offset + length * per_frame
    durations: Counter[Scale] = Counter()
    for scale, stretches in found:
        durations[scale] += sum(stretch.values.shape[1] for stretch in stretches)
    usual, kept = durations.most_common(1)[0]
    if kept == 0:
        paths = ", ".join(str(record.header.path) for record in records)
        raise DataError(f"{name}: {paths}: every sample of {' or '.join(channels)} is invalid; nothing is left")
    return Recording(
        stretches=tuple(stretch for scale, stretches in found if scale == usual for stretch in stretches),
        rate=next(iter(rates)),
        steps=tuple((1 / abs(gain), unit) for gain, _, unit in usual),
        lattices=tuple(Lattice(-zero / gain, 1 / gain, STATED_ERROR / abs(gain)) for gain, zero, _ in usual),
        length=offset,
        invalid=invalid,
        rescaled=durations.total() - kept,
    )


def _per_frame(name: str, segment: Segment, channels: Sequence[str]) -> int:
    """Return samples per frame, which must be the same for all channels."""
    counts = [segment.header.per_frame[place] for place in segment.signals]
    if len(set(counts)) > 1:
        rates = ", ".join(
            f"{channel} at {count * segment.header.rate:g} Hz" for channel, count in zip(channels, counts, strict=True)
        )
        raise DataError(f"{name}: {segment.header.path}: {rates}; rates must be equal")
    return counts[0]


def _read_segment(name: str, segment: Segment, channels: Sequence[str]) -> tuple[np.ndarray, np.ndarray, Scale]:
    """Return values (C, n), a mask of the valid rows among the n, and the scale."""
    from wfdb import rdrecord

    header = segment.header
    files = ", ".join(map(str, segment.files))
    try:
        # Not smoothed: an average over a frame is not a value of the converter.
        record = rdrecord(
            str(header.path.with_suffix("")),
            channels=list(segment.signals),
            physical=False,
            smooth_frames=False,
            return_res=32,
        )
        values = np.stack(record.e_d_signal)
    except Exception as error:  # a decoder may raise anything on a damaged file
        size = sum(path.stat().st_size for path in segment.files if path.exists())
        raise DataError(
            f"{name}: {files}: {size:,} bytes that cannot be read as the samples that {header.path} describes "
            f"({type(error).__name__}: {error}); a file may be cut short"
        ) from error
    bits = [_bits(name, header.path, channel, kind) for channel, kind in zip(channels, record.fmt, strict=True)]
    frames = values.shape[1] // _per_frame(name, segment, channels)
    if record.sig_name != list(channels) or segment.frames not in (None, frames):
        raise DataError(
            f"{name}: {files}: {frames} frames of {record.sig_name}; {header.path} announces "
            f"{segment.frames} of {list(channels)}"
        )
    for channel, row, stated, skew in zip(channels, values, record.checksum, record.skew, strict=True):
        if stated is not None and not skew and (int(row.sum(dtype=np.int64)) - stated) % 65536:
            raise DataError(
                f"{name}: {files}: the samples of {channel} do not add up to the checksum {stated} of {header.path}: "
                "a file is damaged; get it anew"
            )
    for channel, place in zip(channels, segment.signals, strict=True):
        gain = header.gains[place]
        if not (math.isfinite(gain) and gain and math.isfinite(1 / gain)):
            raise DataError(
                f"{name}: {header.path}: {channel} has the gain {gain:g}, so its values have no unit; a gain is a "
                "finite number of converter units per physical unit, not 0: correct the header"
            )
    valid = (values != [[-(2 ** (width - 1))] for width in bits]).all(0)
    scale = tuple(zip(map(float, record.adc_gain), map(int, record.baseline), map(str, record.units), strict=True))
    return values if max(bits) > 16 else values.astype(np.int16), valid, scale


def _bits(name: str, path: Path, channel: str, kind: str) -> int:
    """Return the bits of a sample of this format."""
    if kind not in BITS:
        raise DataError(
            f"{name}: {path}: {channel} is in format {kind}, which marks no invalid samples; "
            f"formats that can be read: {', '.join(BITS)}"
        )
    return BITS[kind]


def _stretches(values: np.ndarray, valid: np.ndarray, start: int) -> Iterator[Stretch]:
    """Yield the runs of valid rows."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], valid.view(np.int8), [0]])))
    for first, last in edges.reshape(-1, 2):
        yield Stretch(start + int(first), values[:, first:last])
