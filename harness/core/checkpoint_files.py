"""Where checkpoints lie and whose they are; to look at that takes no torch.

A checkpoint is one file, `checkpoints/<trial id>/<step>.ckpt`: a line of JSON that says whose state it is, the state
as `torch.save` writes it, and the SHA-256 of both. It takes its name when it is whole.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

FORMAT = 1
SUFFIX = ".ckpt"
LONGEST_HEADER = 1 << 20  # bytes


@dataclass(frozen=True)
class Header:
    """The first line of a checkpoint.

    Attributes:
        trial: id.
        step: the last step that was done.
        steps: how many there are to do.
        seconds: wall time of the trial up to there, over all its processes.
        interruptions: how often it had gone on from a checkpoint before.
        torch: version that wrote it.
        sources: of `harness.core.sources.Sources`, of the source that did the steps.
    """

    trial: str
    step: int
    steps: int
    seconds: float
    interruptions: int
    torch: str
    sources: dict[str, str]
    format: int = FORMAT


def checkpoint_folder(out: Path, name: str) -> Path:
    """`out/checkpoints/<trial id>`."""
    return out / "checkpoints" / name


def checkpoint_files(out: Path, name: str) -> list[Path]:
    """The checkpoints of a trial, the newest first."""
    found = [path for path in checkpoint_folder(out, name).glob(f"*{SUFFIX}") if path.stem.isdecimal()]
    return sorted(found, key=lambda path: int(path.stem), reverse=True)


def read_header(file: BinaryIO) -> tuple[Header, bytes]:
    """The header at the file's beginning and the line that it was; ValueError where there is none."""
    line = file.readline(LONGEST_HEADER)
    try:
        header = Header(**json.loads(line))
        sound = header.format == FORMAT and header.step >= 0 and isinstance(header.sources, dict)
    except (ValueError, TypeError) as error:
        raise ValueError("it has no header") from error
    if not sound:
        raise ValueError(f"format {header.format!r}, this version reads {FORMAT}")
    return header, line


def newest_header(out: Path, name: str) -> Header | None:
    """The header of a trial's newest checkpoint, for a look at how far it is; the state behind it is not read."""
    for path in checkpoint_files(out, name):
        try:
            with path.open("rb") as file:
                return read_header(file)[0]
        except (OSError, ValueError):
            continue
    return None
