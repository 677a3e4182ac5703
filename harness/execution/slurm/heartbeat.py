"""The sign of life that the process around a trial gives, for those who look at the shared disk from elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.core.errors import UserError
from harness.core.records import TEMPORARY
from harness.core.settings import Trial
from harness.execution.progress import Reporter
from harness.execution.slurm.submissions import Beat, beat_path, read_beat


class Heart(Reporter):
    """Writes `heartbeats/<trial id>.json` again and again, from entering the context to leaving it.

    As a reporter it hears how far the trial is, and passes that on.

    Args:
        out: the suite's folder.
        trial: which.
        beat: of which only the progress changes.
    """

    def __init__(self, out: Path, trial: Trial, beat: Beat) -> None:
        super().__init__(1, sys.stdout)
        self.path = beat_path(out, trial.id)
        self.beat = beat
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def __enter__(self) -> Self:
        self._write()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def update(self, trial: Trial, fraction: float, text: str) -> None:
        """Say so with the next beat."""
        fraction = fraction if 0 <= fraction <= 1 else 0.0
        self.beat = self.beat.model_copy(update={"fraction": fraction, "text": text})

    def _go_on(self) -> None:
        while not self._over.wait(self.beat.seconds):
            self._write()

    def _write(self) -> None:
        # Whole or not at all, but not forced onto the disk, which may take longer than the next beat. A full disk ends
        # no trial: it is its record that counts.
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(exist_ok=True)
            new = self.path.with_name(f".{self.path.name}{TEMPORARY}")
            new.write_text(self.beat.model_dump_json(), encoding="utf-8")
            new.replace(self.path)


def wait_for_silence(out: Path, trial: Trial, job: str) -> None:
    """Wait until no other job gives a sign of life for this trial.

    One that was cancelled, or lost and given up, may take a while to end. Clocks of two machines may differ: a sign
    that does not change any more is none, whatever its age seems to be.

    Raises:
        UserError: it goes on and on.
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
            raise UserError(f"job {beat.job} works on {trial.id} already")
        time.sleep(min(1.0, beat.seconds))
