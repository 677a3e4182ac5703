"""The heartbeat of a trial's supervising process, for observers of the shared disk on other machines."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from pathlib import Path

from harness.core.errors import UserError
from harness.core.records import TEMPORARY
from harness.core.trial import Trial
from harness.execution.progress import Reporter
from harness.execution.slurm.submissions import Beat, beat_path, read_beat


class Heartbeat(Reporter):
    """Write `out/heartbeats/<trial id>.json` periodically while in the context; only the trial's progress changes."""

    def __init__(self, out: Path, trial: Trial, beat: Beat) -> None:
        super().__init__(1, sys.stdout)
        self.path = beat_path(out, trial.id)
        self.beat = beat
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> Heartbeat:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def update(self, trial: Trial, fraction: float, text: str) -> None:
        """Include the progress in the next heartbeat."""
        self.beat = self.beat.model_copy(update={"fraction": fraction, "text": text})

    def _repeat(self) -> None:
        while not self._over.wait(self.beat.seconds):
            self._write()

    def _write(self) -> None:
        # Atomically, but not forced onto the disk, which may take longer than the next beat. A full disk ends no trial:
        # its record matters, not its heartbeat.
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(exist_ok=True)
            new = self.path.with_name(f".{self.path.name}{TEMPORARY}")
            new.write_text(self.beat.model_dump_json(), encoding="utf-8")
            new.replace(self.path)


def wait_for_silence(out: Path, trial: Trial, job: str) -> None:
    """Wait until no other job writes a heartbeat for this trial.

    A job that was cancelled, or lost and given up, may take a while to end. Clocks of two machines may differ: a
    heartbeat that no longer changes is ignored, whatever its apparent age.

    Raises:
        UserError: the other job's heartbeat does not stop.
    """
    begin = since = time.monotonic()
    stamp: int | None = None
    while (found := read_beat(out, trial.id)) is not None:
        beat, age = found
        now = time.monotonic()
        if beat.job == job or age > beat.patience:
            return
        with contextlib.suppress(OSError):
            seen = beat_path(out, trial.id).stat().st_mtime_ns
            if seen != stamp:
                stamp, since = seen, now
        if now - since > beat.patience:
            return
        if now - begin > 3 * beat.patience:
            raise UserError(f"job {beat.job} already runs {trial.id}")
        time.sleep(min(1.0, beat.seconds))
