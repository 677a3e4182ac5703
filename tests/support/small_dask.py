"""A real Dask cluster on one machine: one scheduler and workers, each a process with a folder of its own.

Neither of them can import invertbench itself: a scheduler needs none, and a worker runs it in another process. This
file has no tests.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
BLOCKED = 'raise ImportError("invertbench is not here")\n'


class SmallDask:
    """A scheduler; `start_worker` starts workers, and `close` ends all of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workers: list[subprocess.Popen[bytes]] = []
        (folder / "blocked").mkdir(parents=True)
        (folder / "blocked" / "harness.py").write_text(BLOCKED)
        self.start_scheduler()

    def start_scheduler(self) -> None:
        """Start a scheduler at a new address."""
        self.scheduler = self._start("dask_scheduler", "scheduler", "--host=127.0.0.1", "--port=0", "--no-dashboard")
        self.address = self._said("scheduler", "Scheduler at:").split()[-1]

    def start_worker(
        self, threads: int = 1, blocked: bool = False, answer: str | None = None, **environment: str
    ) -> subprocess.Popen[bytes]:
        """Start a worker and wait until it is registered, unless it has an answer.

        Args:
            threads: of the worker.
            blocked: its trials cannot import invertbench either.
            answer: to each trial, in place of its result (see bad_dask_worker.py).
            environment: more variables.
        """
        name = f"worker{len(self.workers)}"
        path = {} if blocked else {"PYTHONPATH": str(PROJECT)}
        if answer is not None:
            path |= {"ANSWER": answer, "BOMB": str(self.folder / "bomb")}
        worker = self._start(
            *("dask_worker", name, self.address, "--host=127.0.0.1", "--no-nanny", "--no-dashboard"),
            *(f"--nthreads={threads}", f"--local-directory={self.folder / name / 'scratch'}"),
            *(() if answer is None else (f"--preload={Path(__file__).with_name('bad_dask_worker.py')}",)),
            environment=path | environment,
        )
        self.workers.append(worker)
        if answer is None:
            self._said(name, "Registered to:")
        return worker

    def output(self, name: str) -> str:
        """Return the output of a process so far."""
        return (self.folder / name / "output.txt").read_text(errors="replace")

    def close(self) -> None:
        """End all processes."""
        for process in (*self.workers, self.scheduler):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait()

    def _start(self, module: str, name: str, *options: str, environment: dict[str, str] | None = None):
        place = self.folder / name
        place.mkdir(exist_ok=True)
        variables = {"PYTHONPATH": str(self.folder / "blocked"), "TMPDIR": str(place)} | (environment or {})
        with (place / "output.txt").open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{module}", *options],
                cwd=place,
                env=os.environ | variables,
                stdout=output,
                stderr=output,
            )

    def _said(self, name: str, text: str) -> str:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            for line in self.output(name).splitlines():
                if text in line:
                    return line
            time.sleep(0.1)
        raise AssertionError(f"{name}: {self.output(name)}")
