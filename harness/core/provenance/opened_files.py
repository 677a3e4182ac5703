"""Name the files that third-party layers read while a trial runs, and that are not part of their digest."""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Self

from harness.core.files import DATA, open_file

LISTED = 5  # files that a text names
LIBRARIES = tuple({str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "purelib", "platlib")})
SYSTEM = ("/proc/", "/sys/", "/dev/")


class OpenedFiles:
    """Watch, inside of `with`, which files code opens to read.

    Args:
        files: the files of the code, which are part of its digest, by their names in records.
    """

    _hooked = False  # an audit hook cannot be removed
    _watching: OpenedFiles | None = None

    def __init__(self, files: Mapping[Path, str]) -> None:
        self._names = {str(path): name for path, name in files.items()}
        self._opened: dict[str, str] = {}  # path -> name of the file whose code opened it

    def __enter__(self) -> Self:
        if self._names and not OpenedFiles._hooked:
            OpenedFiles._hooked = True
            sys.addaudithook(_on_event)
        OpenedFiles._watching = self if self._names else None
        return self

    def __exit__(self, *_: object) -> None:
        OpenedFiles._watching = None

    def note(self, path: Any, flags: Any, frame: FrameType | None) -> None:
        """Remember a file if it is opened to read by code of the watched files, or by what that calls."""
        if not isinstance(path, str | bytes) or not isinstance(flags, int) or flags & (os.O_WRONLY | os.O_TRUNC):
            return
        while frame is not None and frame.f_code.co_filename not in self._names:
            frame = frame.f_back
        if frame is not None:
            place = os.path.realpath(os.fsdecode(path))
            if not place.startswith((*LIBRARIES, *SYSTEM)) and place not in self._names and not place.endswith(".pyc"):
                self._opened.setdefault(place, self._names[frame.f_code.co_filename])

    def text(self) -> str | None:
        """Return which files were opened, each with a digest of its content; None if there are none."""
        clauses = []
        for place, by in sorted(self._opened.items()):
            try:
                with open_file(Path(place), DATA) as file:
                    content = f"SHA-256 {hashlib.file_digest(file, 'sha256').hexdigest()[:12]}"
            except OSError:
                content = "gone"
            clauses.append(f"{Path(place).name} ({content}), which {by} opens")
        if not clauses:
            return None
        more = f" and {len(clauses) - LISTED} more" * (len(clauses) > LISTED)
        return f"not part of the digest of its source: {'; '.join(clauses[:LISTED])}{more}"


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and OpenedFiles._watching:
        OpenedFiles._watching.note(arguments[0], arguments[2], sys._getframe(1))
