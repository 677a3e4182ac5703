"""Open a text file of numbers: find its compression, encoding, header and separator, or name what is wrong.

Nothing that changes a number is guessed. Compression and a byte order mark are facts of the file. Cells may be
separated by another character than a comma if that alone gives the columns that were asked for. Text that is no UTF-8
is read as Latin-1: this changes names, which have to fit, and no number. A decimal comma could as well separate
thousands, so it is refused.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import csv
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, TextIO, cast

from harness.core.errors import DataError, nearest
from harness.core.files import DATA, open_file
from harness.core.provenance.machine import available_memory
from harness.core.run_options import shown_bytes
from harness.datasets._values.npz_stream import MEMORY_SHARE

Columns = tuple[str | int, ...] | int
"""Names of columns, their numbers from 1 on, or how many there are."""

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
SPACE = " "  # named, and not read: cells may be empty
LONGEST_LINES = 1 << 20  # characters that are searched for the header
MARKS = {  # of an encoding; that of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_COMPRESSED: dict[bytes, Callable[[BinaryIO], AbstractContextManager[Any]]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}
_OTHERS = {b"\x28\xb5\x2f\xfd": "compressed by zstd", b"PAR1": "a Parquet file", b"\x89HDF": "an HDF5 file"}


@dataclass(frozen=True)
class TextTable:
    """A text file of numbers."""

    name: str  # of the data set and the file, for messages
    path: Path
    encoding: str
    separator: str
    skipped: int  # lines before the first row of numbers
    line: int  # number of the line with the names; of a file without a header, that of the first row
    names: tuple[str, ...]  # the cells of that line

    @contextlib.contextmanager
    def opened(self) -> Iterator[TextIO]:
        """Open the file at its first row of numbers."""
        with _decoded(self.name, self.path, self.encoding) as file:
            for _ in range(self.skipped):
                file.readline()
            yield file

    @property
    def described(self) -> str:
        """The separator and the encoding, unless the file is UTF-8 with commas; then empty."""
        parts = [f"cells separated by {SEPARATORS[self.separator]}"] * (self.separator != ",")
        parts += [f"read as {self.encoding}"] * (self.encoding not in ("utf-8", "utf-8-sig"))
        return ", ".join(parts)


def open_table(name: str, path: Path, columns: Columns, header: bool) -> TextTable:
    """Return the description of a file that has these columns, by their names or their number.

    Raises:
        DataError: it is no text, or has other columns; the message starts with `name`, and names the compression, the
            encoding or the separator if that is the reason.
    """
    _refuse_bomb(name, path)
    encoding = _encoding(name, path)
    first: tuple[int, str] | None = None
    with _decoded(name, path, encoding) as file:
        for number, line in enumerate(_lines(name, file), 1):
            if not line.strip():
                continue
            comment = line.lstrip().startswith("#")
            # Names may come behind a mark, as numpy writes them; a first name may begin with one.
            for text in (line, line.lstrip().lstrip("#")) if comment and header else () if comment else (line,):
                for separator in SEPARATORS:
                    if _fits(cells := _cells(text, separator), columns):
                        skipped = number if header else number - 1
                        return TextTable(name, path, encoding, separator, skipped, number, cells)
            if not comment:
                first = number, line
                break
    if first is None:
        raise DataError(f"{name}: has no rows; it must have numbers separated by commas")
    raise DataError(f"{name}: {_misfit(*first, columns, encoding)}")


def _fits(cells: tuple[str, ...], columns: Columns) -> bool:
    if isinstance(columns, int):
        return len(cells) == columns
    return set(columns) <= {*cells, *range(1, len(cells) + 1)}


def whole_cells(reader: Any, name: str, skipped: int = 0) -> Iterator[list[str]]:
    """Yield the rows of a csv reader; raise a DataError, for a file whose first lines it skips, at a longer cell."""
    try:
        yield from reader
    except csv.Error as error:
        raise DataError(
            f"{name}: line {reader.line_num + skipped}: cannot be split into cells ({error}), as after a quote that is "
            "not closed; close it, or write the file without its column of long texts"
        ) from error


def _cells(line: str, separator: str) -> tuple[str, ...]:
    """Return the cells of a line; none if one would be longer than any cell, as with a separator of another table."""
    with contextlib.suppress(csv.Error):
        return tuple(cell.strip() for cell in next(csv.reader([line], delimiter=separator, skipinitialspace=True), []))
    return ()


def _misfit(number: int, line: str, columns: Columns, encoding: str) -> str:
    """Return why the first line does not have the columns that were asked for."""
    counts = {mark: len(_cells(line, mark)) for mark in (*SEPARATORS, SPACE)}
    most = "," if counts[","] > 1 else max(counts, key=lambda mark: counts[mark])
    if not (cells := _cells(line, most)):
        return f"line {number} has a cell of more than {csv.field_size_limit():,} characters; write names or numbers"
    if most == SPACE and _fits(cells, columns):
        return f"the cells of line {number} are separated by spaces, which are not read; write commas"
    separated = f"; its cells seem to be separated by {SEPARATORS.get(most, 'spaces')}" if most != "," else ""
    if encoding == "latin-1":
        separated += "; the file is not UTF-8, and was read as Latin-1: write it in UTF-8"
    if isinstance(columns, int):
        return f"has {counts[',']} columns, and columns = {columns} takes all; name some{separated}"
    if isinstance(columns[0], int):
        return f"has {len(cells)} columns in line {number}, and columns names number {max(columns)}{separated}"
    lacking = str(next(column for column in columns if column not in cells))
    return f"has no column {lacking!r} in line {number}; {nearest(lacking, cells)}{separated}"


def _lines(name: str, file: TextIO) -> Iterator[str]:
    """Yield the first lines; raise a DataError beyond a bound: a file of another kind may have no lines."""
    left = LONGEST_LINES
    while left > 0 and (line := file.readline(left)):
        left -= len(line)
        if not left and not line.endswith(("\n", "\r")):
            raise DataError(
                f"{name}: its first row does not end within {LONGEST_LINES:,} characters; shorten the names of its "
                "columns, or leave out comments"
            )
        yield line


def _encoding(name: str, path: Path) -> str:
    """Return the encoding of a file; raise a DataError if it is no text."""
    with _uncompressed(name, path) as file:
        start = file.read(1 << 12)
        for mark, encoding in MARKS.items():
            if start.startswith(mark):
                return encoding
        if b"\0" in start:
            alternates = not any(start[::2]) or not any(start[1::2])  # as in UTF-16 of Latin letters
            kind = "UTF-16 without a byte order mark" if alternates else "binary data, not text"
            raise DataError(f"{name}: is {kind}; write it as text in UTF-8, of numbers separated by commas")
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            while start:
                decoder.decode(start)
                start = file.read(1 << 20)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "latin-1"
    return "utf-8"


def _refuse_bomb(name: str, path: Path) -> None:
    """Raise a DataError if a file, perhaps of few bytes, unpacks to more text than a table in memory may have."""
    most = int(MEMORY_SHARE * available_memory())
    size = path.stat().st_size
    if size <= most:  # it may be compressed
        size = 0
        with _uncompressed(name, path) as file:
            while size <= most and (part := file.read(1 << 20)):
                size += len(part)
    if size > most:
        raise DataError(
            f"{name}: has more than {shown_bytes(most)} of text, {MEMORY_SHARE:.0%} of the available memory; write "
            "fewer rows or columns"
        )


@contextlib.contextmanager
def _uncompressed(name: str, path: Path) -> Iterator[IO[bytes]]:
    """Open a file, decompressed if it is compressed; errors of the decompression are DataErrors."""
    try:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(open_file(path, DATA))
            start = file.peek(8)
            for mark, kind in _OTHERS.items():
                if start.startswith(mark):
                    raise DataError(
                        f"{name}: is {kind}; write it as a .csv file, which may be compressed by gzip, bzip2 or xz"
                    )
            if start.startswith(b"PK\x03\x04"):
                archive = stack.enter_context(zipfile.ZipFile(file))
                members = [member for member in archive.namelist() if not member.endswith("/")]
                if len(members) != 1:
                    raise DataError(f"{name}: is a zip archive of {len(members)} files; it must hold one .csv file")
                yield stack.enter_context(archive.open(members[0]))
                return
            unpack = next((unpack for mark, unpack in _COMPRESSED.items() if start.startswith(mark)), None)
            yield cast("IO[bytes]", file if unpack is None else stack.enter_context(unpack(file)))
    except (EOFError, zipfile.BadZipFile, lzma.LZMAError, gzip.BadGzipFile, zlib.error, RuntimeError) as error:
        raise DataError(f"{name}: cannot be decompressed ({error}); get it anew") from error


@contextlib.contextmanager
def _decoded(name: str, path: Path, encoding: str) -> Iterator[TextIO]:
    with _uncompressed(name, path) as file, io.TextIOWrapper(file, encoding, newline="") as text:
        try:
            yield text
        except UnicodeDecodeError as error:
            raise DataError(f"{name}: is no {encoding} text, as its byte order mark says ({error.reason})") from error
