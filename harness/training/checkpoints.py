"""The state of training, saved periodically, so that it can resume after any end of its process.

See `harness.core.checkpoint_files` for the files. The two newest are kept, so that a good one exists while a newer one
is incomplete or damaged.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import time
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import torch

from harness.core.checkpoint_files import SUFFIX, CheckpointHeader, checkpoint_files, checkpoint_folder, read_header
from harness.core.files import STATE, atomic_file, read_file
from harness.core.provenance.sources import changes
from harness.core.run_options import RunOptions
from harness.core.trial import Trial

KEPT = 2
CHECKSUM_BYTES = 32
TIMES_WRITING = 20  # the pause between two checkpoints, in multiples of the time to write one: at most 5 % of the time


class Stateful(Protocol):
    """An object with a part of the state: a module, an optimiser, an order of examples."""

    def state_dict(self) -> dict[str, Any]:
        """Return tensors, numbers and texts, in dicts and lists."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Restore a state."""


class Checkpoints:
    """The checkpoints of one running trial, whose training has `steps` steps.

    Attributes:
        chosen: the choice of the trial's tuning, as text; a checkpoint of another choice is skipped.
        sources: digests of the source behind the result: after resuming from a checkpoint of other source, its digests.
        seconds: wall time of the trial up to its interruption; 0 for a new trial.
        notes: remarks for the record: the step of a resume, the files that were skipped.
    """

    def __init__(self, trial: Trial, steps: int, run_options: RunOptions, sources: Mapping[str, str]) -> None:
        self.trial = trial
        self.steps = steps
        self.run_options = run_options
        self.sources = dict(sources)
        self.chosen = ""
        self.seconds = 0.0
        self.notes: dict[str, str] = {}
        self._interruptions = self._lost = 0
        self._begin = self._last = time.monotonic()
        self._pause = run_options.checkpoint

    @property
    def lasting(self) -> bool:
        """Return whether training is long enough to keep its end, too."""
        return self._interruptions > 0 or time.monotonic() - self._begin >= self.run_options.checkpoint

    def due(self) -> bool:
        """Return whether the next checkpoint is due."""
        return time.monotonic() - self._last >= self._pause

    def save(self, step: int, parts: Mapping[str, Stateful]) -> None:
        """Write the state after `step`; if that fails, training continues, and the notes give the reason."""
        header = CheckpointHeader(
            trial=self.trial.id,
            step=step,
            steps=self.steps,
            seconds=self.seconds + time.monotonic() - self._begin,
            interruptions=self._interruptions,
            torch=str(torch.__version__),
            sources=self.sources,
            chosen=self.chosen,
        )
        begin = time.monotonic()
        path = checkpoint_folder(self.run_options.out, self.trial.id) / f"{step:09d}{SUFFIX}"
        try:
            with atomic_file(path) as file:
                write_checkpoint(file, header, {name: part.state_dict() for name, part in parts.items()})
        except (OSError, RuntimeError) as error:  # torch wraps exceptions of a file's write method
            self._lost += 1
            self.notes["checkpoints lost"] = f"{self._lost} could not be written, {path.name} last ({error})"
        else:
            for old in checkpoint_files(self.run_options.out, self.trial.id)[KEPT:]:
                old.unlink(missing_ok=True)
        self._last = time.monotonic()
        if self.run_options.checkpoint > 0:
            self._pause = max(self.run_options.checkpoint, TIMES_WRITING * (self._last - begin))

    def restore(self, parts: Mapping[str, Stateful]) -> None:
        """Restore every part from the newest good checkpoint; without one, change nothing.

        A file that is damaged, of another trial, or of parts that do not fit is named in the notes and skipped, and so
        is one of other source, unless `run_options.stale` says to keep it.
        """
        for path in checkpoint_files(self.run_options.out, self.trial.id):
            before = {name: deepcopy(part.state_dict()) for name, part in parts.items()}
            try:
                header, state = read_checkpoint(path)
                self._check(header)
                _load(parts, state)
            except (OSError, ValueError, RuntimeError, KeyError, TypeError, IndexError) as error:
                _load(parts, before)
                text = f"{path.name} is skipped ({(str(error) or type(error).__name__).splitlines()[0]})"
                self.notes["checkpoints"] = "; ".join(filter(None, [self.notes.get("checkpoints"), text]))
                continue
            self._take_over(header)
            return

    def remove(self) -> None:
        """Delete all checkpoints of the trial, once it has its record."""
        shutil.rmtree(checkpoint_folder(self.run_options.out, self.trial.id), ignore_errors=True)

    def _check(self, header: CheckpointHeader) -> None:
        if header.trial != self.trial.id:
            raise ValueError(f"it is of trial {header.trial}")
        if header.chosen != self.chosen:
            raise ValueError("its tuning had chosen other settings")
        differing = changes(header.sources, self.sources)
        if differing and self.run_options.stale == "rerun":
            raise ValueError(f"made by other source: {', '.join(differing)}")

    def _take_over(self, header: CheckpointHeader) -> None:
        self._interruptions = header.interruptions + 1
        self.seconds = header.seconds
        times = "once" if self._interruptions == 1 else f"{self._interruptions} times"
        text = f"training was interrupted {times}, and resumed from step {header.step} of {header.steps}"
        differing = changes(header.sources, self.sources)
        if differing:
            text += f"; until then by other source: {', '.join(differing)}"
            self.sources = dict(header.sources)
        text += f"; until then under torch {header.torch}" * (header.torch != torch.__version__)
        self.notes["resumed"] = text


def write_checkpoint(file: BinaryIO, header: CheckpointHeader, state: Mapping[str, Any]) -> None:
    """Write one checkpoint while it is serialised, so that it is never in memory twice."""
    summed = _Summed(file)
    summed.write(json.dumps(vars(header), sort_keys=True).encode() + b"\n")
    generators = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        generators["cuda"] = torch.cuda.get_rng_state()
    torch.save({"parts": dict(state), "generators": generators}, summed)  # type: ignore[arg-type]
    file.write(summed.digest.digest())


def read_checkpoint(path: Path) -> tuple[CheckpointHeader, dict[str, Any]]:
    """Return the header and the state of one checkpoint.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged; the message says how.
    """
    content = read_file(path, STATE)
    header, line = read_header(io.BytesIO(content))
    state = read_tensors(content, len(line))
    return header, state


def read_tensors(content: bytes, start: int = 0) -> Any:
    """Return what `torch.save` wrote, on the CPU, from `start` to the checksum at the end of all content.

    Raises:
        ValueError: it is damaged, or holds objects other than tensors, numbers and texts.
    """
    if hashlib.sha256(memoryview(content)[:-CHECKSUM_BYTES]).digest() != content[-CHECKSUM_BYTES:]:
        raise ValueError("it is damaged: its checksum does not fit")
    try:
        return torch.load(io.BytesIO(content[start:-CHECKSUM_BYTES]), map_location="cpu", weights_only=True)
    except Exception as error:  # torch and pickle raise many kinds
        raise ValueError("it is not readable as tensors, numbers and texts") from error


def _load(parts: Mapping[str, Stateful], state: Mapping[str, Any]) -> None:
    """Restore every part; `state` may lack torch's generators."""
    inner = state.get("parts", state)
    if inner.keys() != parts.keys():
        raise ValueError(f"it holds {', '.join(inner)}, not {', '.join(parts)}")
    for name, part in parts.items():
        part.load_state_dict(inner[name])
    generators = state.get("generators", {})
    if "cpu" in generators:
        torch.set_rng_state(generators["cpu"])
    if "cuda" in generators and torch.cuda.is_initialized():
        torch.cuda.set_rng_state(generators["cuda"])


class _Summed:
    """Write through to a file, and hash the content."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self.file.write(data)

    def flush(self) -> None:
        self.file.flush()
