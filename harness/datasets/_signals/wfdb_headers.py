"""Read from WFDB headers which files belong to a record: its segments, its signals, and where their samples lie.

Source: https://physionet.org/physiotools/wag/header-5.htm
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import DataError

NO_DATA = "~"  # in place of a file or a segment


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
    from wfdb import MultiRecord, rdheader

    try:
        found = rdheader(str(path.with_suffix("")))
    except OSError as error:
        raise DataError(f"{name}: {path}: cannot be read ({error.strerror or error})") from error
    except Exception as error:  # whatever the parser makes of another file
        raise DataError(f"{name}: {path}: not a WFDB header ({type(error).__name__}: {error})") from error
    signals: list[Signal] = []
    segments: list[tuple[str, int]] = []
    if isinstance(found, MultiRecord):
        segments = list(zip(found.seg_name, found.seg_len, strict=True))
        announced, described, kind = found.n_seg, len(segments), "segments"
    else:
        if found.file_name:
            signals = list(map(Signal, found.sig_name, found.file_name, found.samps_per_frame))
        announced, described, kind = found.n_sig, len(signals), "signals"
    if announced != described:
        raise DataError(f"{name}: {path}: announces {announced} {kind} and describes {described}; get the file anew")
    if not found.fs:
        raise DataError(f"{name}: {path}: a sampling rate of 0; it must be above 0")
    return Header(path, float(found.fs), found.sig_len, tuple(signals), tuple(segments))
