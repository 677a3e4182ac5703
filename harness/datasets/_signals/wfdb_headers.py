"""Read WFDB headers: the segments, signals and sample files of a record.

A header is a short text: a line for the record, then one for each signal or segment. Only what shows which files
belong together is read here, so that neither a warm start nor a download needs more than text; samples and
their units are read by the package wfdb (see `wfdb_records`).

Source: https://physionet.org/physiotools/wag/header-5.htm
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import DataError

DEFAULT_RATE = 250.0  # samples per second, of a header that names none
NO_DATA = "~"  # in place of a file or a segment

_RECORD = re.compile(
    r"(?P<name>[-\w]+)(?:/(?P<segments>\d+))?\s+(?P<signals>\d+)"
    r"(?:\s+(?P<rate>\d+\.?\d*|\.\d+)(?:/\S*)?(?:\s+(?P<length>\d+)(?:\s.*)?)?)?"
)
_SIGNAL = re.compile(
    r"(?P<file>~|[-\w]+(?:\.\w*)?)\s+(?P<format>\d+)(?:x(?P<frame>\d+))?(?::\d+)?(?:\+\d+)?(?:\s+(?P<rest>.*))?"
)
_SEGMENT = re.compile(r"(?P<name>~|[-\w]+)\s+(?P<length>\d+)")
_FIELDS_BEFORE_NAME = 6  # gain, resolution, zero, first value, checksum, block size


@dataclass(frozen=True)
class Signal:
    """One signal of a segment.

    Attributes:
        name: such as "PLETH"; None if the header gives none.
        file: the file of its samples, in the header's folder, or "~" for none.
        per_frame: samples per frame; a header counts time in frames.
    """

    name: str | None
    file: str
    per_frame: int


@dataclass(frozen=True)
class Header:
    """A header: of signals or, for a record in several segments, of segments.

    Attributes:
        path: the file.
        rate: frames per second.
        length: frames; None if the size of the files determines it.
        signals: in the order of the header.
        segments: (name, frames) in the order of time; "~" is a gap. A first segment of no frames is the layout,
            which lists every signal of the record.
    """

    path: Path
    rate: float
    length: int | None
    signals: tuple[Signal, ...] = ()
    segments: tuple[tuple[str, int], ...] = ()


def read_header(name: str, path: Path) -> Header:
    """Read a header file.

    Args:
        name: name of the data set, for messages.
        path: the .hea file.

    Raises:
        DataError: it cannot be read, or is not a WFDB header.
    """
    try:
        text = path.read_text(encoding="ascii", errors="ignore")  # as wfdb does
    except OSError as error:
        raise DataError(f"{name}: {path}: cannot be read ({error.strerror or error})") from error
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    first = _RECORD.fullmatch(lines[0]) if lines else None
    if first is None:
        raise DataError(f"{name}: {path}: not a WFDB header; the first line of one is RECORD SIGNALS RATE SAMPLES")
    rate = float(first["rate"] or DEFAULT_RATE)
    if rate == 0:
        raise DataError(f"{name}: {path}: a sampling rate of 0; it must be above 0")
    length = int(first["length"]) if first["length"] else None
    announced, kind = int(first["segments"] or first["signals"]), "segment" if first["segments"] else "signal"
    rest = lines[1 : announced + 1]
    if len(rest) < announced:
        raise DataError(f"{name}: {path}: announces {announced} {kind}s and describes {len(rest)}: it is cut short")
    found = [(_SEGMENT if first["segments"] else _SIGNAL).fullmatch(line) for line in rest]
    for line, match in zip(rest, found, strict=True):
        if match is None:
            raise DataError(f"{name}: {path}: {line[:60]!r} is not the line of a {kind}")
    described = [match for match in found if match is not None]
    if first["segments"]:
        segments = tuple((match["name"], int(match["length"])) for match in described)
        return Header(path, rate, length, segments=segments)
    return Header(path, rate, length, signals=tuple(map(_signal, described)))


def _signal(match: re.Match[str]) -> Signal:
    fields = (match["rest"] or "").split(maxsplit=_FIELDS_BEFORE_NAME)
    named = fields[_FIELDS_BEFORE_NAME].strip() if len(fields) > _FIELDS_BEFORE_NAME else None
    return Signal(named, match["file"], int(match["frame"] or 1))
