"""Location and header of checkpoint files; reading them needs no torch.

A checkpoint is one file, `checkpoints/<trial id>/<step>.ckpt`: a line of JSON, the header, that names the trial, then
the state as `torch.save` writes it, and the SHA-256 of both. It gets its name once it is complete.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import BinaryIO, Literal

from pydantic import ValidationError

from harness.core.files import STATE, checked_name, open_file
from harness.core.settings import Settings

FORMAT: Literal[2] = 2
SUFFIX = ".ckpt"
LONGEST_HEADER = 1 << 20  # bytes


class CheckpointHeader(Settings):
    """The first line of a checkpoint."""

    trial: str  # its id
    step: int  # the last one that was completed
    steps: int  # in all
    seconds: float  # wall time of the trial so far, over all its processes
    interruptions: int  # earlier resumes from a checkpoint
    torch: str  # the version that wrote it
    sources: dict[str, str]  # digests of the source that did the steps (see `harness.core.provenance.sources.Sources`)
    chosen: str = ""  # by the trial's tuning, as text; empty without tuning
    format: Literal[2] = FORMAT


def checkpoint_folder(out: Path, name: str) -> Path:
    """Return `out/checkpoints/<trial id>`."""
    return out / "checkpoints" / checked_name(name)


def checkpoint_files(out: Path, name: str) -> list[Path]:
    """Return the checkpoints of a trial, the newest first."""
    try:  # not a glob, which takes three times as long where there is no folder, as for most trials of a plan
        files = list(checkpoint_folder(out, name).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    checkpoints = [path for path in files if path.suffix == SUFFIX and path.stem.isdecimal()]
    return sorted(checkpoints, key=lambda path: int(path.stem), reverse=True)


def read_header(file: BinaryIO) -> tuple[CheckpointHeader, bytes]:
    """Return the header at the start of the file and the line that held it; raise ValueError if there is none."""
    line = file.readline(LONGEST_HEADER)
    try:
        return CheckpointHeader.model_validate_json(line, strict=True), line
    except ValidationError as error:
        raise ValueError(f"it has no header of format {FORMAT}") from error


def newest_header(out: Path, name: str) -> CheckpointHeader | None:
    """Return the header of a trial's newest checkpoint, without reading the state that follows it."""
    for path in checkpoint_files(out, name):
        with contextlib.suppress(OSError, ValueError), open_file(path, STATE) as file:
            return read_header(file)[0]
    return None
