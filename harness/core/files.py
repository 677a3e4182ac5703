"""Open files that a user or a run provides, check names that become paths, and write files atomically.

Every file that is read goes through `open_file`, which takes regular files up to a limit of their kind: a pipe, a
device or a socket would never end, and a sparse file of 300 GB takes no space on the disk.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import re
import secrets
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, BinaryIO

from pydantic import AfterValidator

# The largest files that are read, in bytes, by their kind.
SUITE = 500_000
TEXT = 1 << 20  # a header, the owner of a folder
SOURCE = 1 << 24  # a Python file
RECORD = 1 << 28  # a plan, a record, its arrays, an archive, a table, a submission: a hundred times those of 240 trials
STATE = 1 << 34  # weights and checkpoints
IMAGE = 1 << 30
DATA_IN_MEMORY = 1 << 30  # a file of a data set that is read at once
DATA = 1 << 43  # a file of a data set that is read in parts

LONGEST_NAME = 200  # bytes of a name; file systems take 255, with what is added to it
TEMPORARY = ".tmp"
_NAME = re.compile(r"[\w-][\w.-]*")


class Unwritten(OSError):
    """A file of a run could not be written; an OSError of a layer is another."""


def checked_name(text: str) -> str:
    """Return a text that is used as the name of a file or folder; raise ValueError if it could be another path.

    A name has letters, digits, "_", "-" and ".", does not begin with ".", and has at most `LONGEST_NAME` bytes.
    """
    if _NAME.fullmatch(text) is None or len(text.encode()) > LONGEST_NAME:
        shown = ascii(text) if len(text) <= 80 else f"{text[:80]!a}…"
        raise ValueError(f"{shown} is no name of a file: letters, digits, '_', '-' and '.', not '.' first")
    return text


FileName = Annotated[str, AfterValidator(checked_name)]
"""A text that names a file or folder, as a field of a pydantic model (see `checked_name`)."""


def slug(text: str) -> str:
    """Return a label as part of a file name, of at most half the bytes of a name; several labels may have one slug."""
    name = re.sub(r"\W+", "-", unicodedata.normalize("NFKC", text).lower()).encode(errors="ignore")
    return name[: LONGEST_NAME // 2].decode(errors="ignore").strip("-")


def distinct_slugs(labels: Sequence[str]) -> dict[str, str]:
    """Return label -> slug, with a digest of the label where it would be empty or that of several labels.

    A label that is a slug already keeps it, so that none depends on the order of the labels.
    """
    plain = {label: slug(label) for label in labels}
    counts = Counter(plain.values())
    slugs = {}
    for label, name in plain.items():
        if not name or (counts[name] > 1 and name != label):
            digest = hashlib.sha256(label.encode(errors="surrogatepass")).hexdigest()[:8]
            name = f"{name}-{digest}".lstrip("-")
        slugs[label] = name
    return slugs


def open_file(path: Path, most: int) -> io.BufferedReader:
    """Open a regular file of at most `most` bytes to be read; a link to one is followed.

    Raises:
        OSError: it cannot be opened, is no regular file, or is too large; `strerror` is the reason, for a
            message. Nothing waits for the other end of a pipe.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            folder = stat.S_ISDIR(facts.st_mode)
            reason = "it is a folder" if folder else "it is not a regular file but a pipe, a device or a socket"
            raise OSError(errno.EISDIR if folder else errno.EINVAL, reason, str(path))
        if facts.st_size > most:
            reason = f"it has {facts.st_size:,} bytes, and at most {most:,} are read"
            raise OSError(errno.EFBIG, reason, str(path))
        os.set_blocking(handle, True)
        return io.BufferedReader(io.FileIO(handle))
    except BaseException:
        os.close(handle)
        raise


def read_file(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most `most` bytes.

    Raises:
        OSError: as for `open_file`.
    """
    with open_file(path, most) as file:
        return file.read()


def read_text(path: Path, most: int = TEXT) -> str:
    """Return the text of a regular file of at most `most` bytes; bytes that are not UTF-8 are replaced.

    Raises:
        OSError: as for `read_file`.
    """
    return read_file(path, most).decode("utf-8", "replace")


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write, which gets its name only once it is complete and on the disk.

    A reader sees the old content or the new, never a part. A link of that name is replaced, not followed. A killed
    writer leaves behind a file that ends in `.tmp`. Its permissions are those that the umask leaves.

    Raises:
        Unwritten: for any OSError.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{TEMPORARY}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise Unwritten(error.errno, error.strerror or str(error)) from error
    with contextlib.suppress(OSError):  # the name itself, if the system can: a later deletion may depend on it
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely or not at all (see `atomic_file`)."""
    with atomic_file(path) as file:
        file.write(content)


def remove_unfinished(folder: Path) -> None:
    """Remove the files of a folder, which is no link, that a killed `atomic_file` has left."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in folder.glob(f".*.????????{TEMPORARY}"):
        path.unlink(missing_ok=True)
