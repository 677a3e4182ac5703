"""Read headers of WFDB records.

The library wfdb reads the lines of signals and segments. The first line, with the sampling rate and the length, is read
here, as the library takes only the beginning of a number.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import DataError
from harness.core.files import read_text

NO_DATA = "~"  # in place of a file or a segment

DEFAULT_RATE, DEFAULT_GAIN = 250.0, 200.0  # of a header that states none, by the rules of WFDB
_GAIN = re.compile(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?")
_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_RATE = re.compile(rf"({_NUMBER})(?:/{_NUMBER}(?:\({_NUMBER}\))?)?")


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
        formats: of the signals' samples, by WFDB's numbers.
    """

    path: Path
    rate: float
    length: int | None
    names: tuple[str | None, ...] = ()
    files: tuple[str, ...] = ()
    per_frame: tuple[int, ...] = ()
    gains: tuple[float, ...] = ()
    segments: tuple[tuple[str, int], ...] = ()
    formats: tuple[str, ...] = ()


def read_header(name: str, path: Path) -> Header:
    """Read a header file of the data set `name`.

    Raises:
        DataError: it cannot be read, or is not a WFDB header.
    """
    from wfdb import MultiRecord, rdheader

    try:
        fields = _fields(path)  # first: wfdb would read a file without end
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
    first, *lines = fields
    rate, length = _rate(name, path, first), _length(name, path, first)
    if several:
        named = Counter(segment for segment in found.seg_name if segment != NO_DATA)
        twice = [segment for segment, count in named.items() if count > 1]
        if twice:
            raise DataError(f"{name}: {path}: names the segment {twice[0]} {named[twice[0]]} times; get the file anew")
        segments = tuple(zip(found.seg_name, found.seg_len, strict=True))
        return Header(path, rate, length, segments=segments)
    if not parts:
        return Header(path, rate, length)
    gains = _gains(name, path, lines)
    if len(gains) != len(parts):
        raise DataError(f"{name}: {path}: describes {len(parts)} signals on {len(gains)} lines; get the file anew")
    frames = tuple(found.samps_per_frame)
    return Header(path, rate, length, tuple(found.sig_name), tuple(parts), frames, gains, formats=tuple(found.fmt))


def _fields(path: Path) -> list[list[str]]:
    """Return the fields of each line of a header, without comments."""
    return [line.split() for line in read_text(path).splitlines() if line.strip() and not line.lstrip().startswith("#")]


def _rate(name: str, path: Path, fields: list[str]) -> float:
    """Return the frames per second of the first line, RATE[/COUNTER[(BASE)]]; wfdb reads `1.25e2` as 1.25."""
    if len(fields) < 3:
        return DEFAULT_RATE
    rate = _RATE.fullmatch(fields[2])
    if rate is None or not 0 < float(rate[1]) < math.inf:
        raise DataError(
            f"{name}: {path}: a sampling rate of {fields[2][:40]}; it must be a number above 0, such as 125, 1.25e2 or "
            "125/500(0) with the frequency of a counter"
        )
    return float(rate[1])


def _length(name: str, path: Path, fields: list[str]) -> int | None:
    """Return the frames that the first line states; None if it states none, or 0."""
    if len(fields) > 3 and not (fields[3].isascii() and fields[3].isdigit()):
        raise DataError(
            f"{name}: {path}: a length of {fields[3][:40]}; it must be a whole number of samples, or 0 if it is unknown"
        )
    return int(fields[3]) or None if len(fields) > 3 else None


def _gains(name: str, path: Path, lines: Sequence[list[str]]) -> tuple[float, ...]:
    """Return the gains of the signals as the header states them; wfdb reads 0, uncalibrated, as `DEFAULT_GAIN`."""
    gains = []
    for fields in lines:
        try:
            gains.append(float(_GAIN.match(fields[2])[0]) if len(fields) > 2 else DEFAULT_GAIN)  # type: ignore[index]
        except (TypeError, ValueError) as error:
            rule = "is no gain; it begins with a number, such as 200/mV: correct the header"
            raise DataError(f"{name}: {path}: {fields[2][:40]!r} {rule}") from error
    return tuple(gains)
