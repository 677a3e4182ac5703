"""The task of a Dask worker: run one trial in a Python process, and return the bytes that it writes.

Dask sends these functions as code (see `harness.execution.dask.dispatch`), so a scheduler needs no invertbench, and a
worker that lacks it can say so. They use the standard library and distributed alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

OUTCOME = "outcome"  # the file that the process writes
PERIOD = 0.3  # seconds between two looks at the process
LONGEST_END = 20.0  # seconds in which a process ends its trial before it is killed
TAIL = 2000  # characters of the messages of a process that has failed


def run_trial(files: Mapping[str, bytes]) -> bytes:
    """Run the trial of `files["job.json"]` in a new folder, which is removed afterwards.

    If the command gives up the task, or ends, so does the trial.

    Args:
        files: name below the folder -> content; `here/` is the working directory and `run/` the folder of the run.

    Returns:
        bytes as `harness.execution.dask.job.unpacked` reads them.
    """
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state in ("executing", "long-running")

    try:
        with tempfile.TemporaryDirectory(
            prefix="invertbench-", dir=worker.local_directory, ignore_cleanup_errors=True
        ) as name:
            folder = Path(name)
            (folder / "here").mkdir()
            for file, content in files.items():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_bytes(content)
            return run_process(folder, wanted)
    except Exception as error:  # such as of a full disk
        return failed(f"{type(error).__name__}: {error}")


def failed(fault: str, code: int = 2) -> bytes:
    """Return the bytes of a trial that did not run here."""
    return json.dumps({"fault": fault, "code": code}).encode() + b"\n"


def run_process(folder: Path, wanted: Callable[[], bool]) -> bytes:
    """Return the bytes that the process of the trial has written, or those of its failure.

    It ends when its standard input does, and so with this worker, however that one ends.
    """
    with (folder / "messages").open("wb") as messages:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.execution.dask.job", str(folder)],
            cwd=folder / "here",
            stdin=subprocess.PIPE,
            stdout=messages,
            stderr=messages,
            start_new_session=True,
        )
    assert process.stdin is not None
    try:
        while wanted() and process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PERIOD)
    finally:
        process.stdin.close()
        try:
            process.wait(LONGEST_END)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode == 0:
        return (folder / OUTCOME).read_bytes()
    said = " ".join((folder / "messages").read_text(encoding="utf-8", errors="replace")[-TAIL:].split())
    ended = f"the process of the trial ended with exit code {process.returncode}: {said}"
    return failed(f"{ended}; workers need invertbench as the command has it")
