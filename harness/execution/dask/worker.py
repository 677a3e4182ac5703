"""The task of a Dask worker: run one trial in a Python process, and return the files that it leaves.

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
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict

PERIOD = 0.3  # seconds between two looks at the process
LONGEST_END = 20.0  # seconds in which a process ends its trial before it is killed
TAIL = 2000  # characters of the messages of a process that has failed


class Outcome(TypedDict):
    """The outcome of a task.

    Attributes:
        files: name below the run's folder -> content, of each file that the trial has left.
        fault: why the trial could not run here; empty if it has left its record.
        code: exit code for the command in that case.
        lost: whether the process was killed, as a worker may be.
    """

    files: dict[str, bytes]
    fault: str
    code: int
    lost: bool


def run_trial(files: Mapping[str, bytes], topic: str, path: str | None) -> Outcome:
    """Run the trial of `files["job.json"]` in a new folder, which is removed afterwards.

    The progress of the trial is sent as events of `topic`. If the command gives up the task, or ends, so does the
    trial.

    Args:
        files: name below the folder -> content; `here/` is the working directory and `run/` the folder of the run.
        topic: of events.
        path: folder to add to PYTHONPATH, None: none.
    """
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state in ("executing", "long-running")

    with tempfile.TemporaryDirectory(
        prefix="invertbench-", dir=worker.local_directory, ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        for inner in ("here", "run/records", "run/logs"):
            (folder / inner).mkdir(parents=True)
        for file, content in files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
        code = _run(folder, environment(worker, path), wanted, lambda message: worker.log_event(topic, message))
        return _outcome(folder, code)


def environment(worker: Any, path: str | None) -> dict[str, str]:
    """Return the environment of the process, with a folder more in PYTHONPATH, and without what Dask's nanny has set.

    That is for computations inside of workers: OMP_NUM_THREADS, and a threshold of malloc that makes it slower.
    """
    import dask

    variables = dict(os.environ)
    if worker.nanny is not None:
        for name, value in dask.config.get("distributed.nanny.pre-spawn-environ").items():
            if variables.get(name) == str(value):
                del variables[name]
    if path is not None:
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [variables.get("PYTHONPATH"), path]))
    return variables


def _run(
    folder: Path,
    variables: Mapping[str, str],
    wanted: Callable[[], bool],
    tell: Callable[[dict[str, Any]], object],
) -> int | None:
    """Return the exit code of the process; None if it was no longer wanted.

    It ends when its standard input does, and so with this worker, however that one ends.
    """
    with (folder / "messages").open("wb") as messages:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.execution.dask.process", str(folder)],
            cwd=folder / "here",
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            start_new_session=True,
        )
    assert process.stdin is not None and process.stdout is not None

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with contextlib.suppress(ValueError):  # a line cut by the end of the process
                tell(json.loads(line))

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        while wanted():
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(PERIOD)
        return None
    finally:
        process.stdin.close()
        try:
            process.wait(LONGEST_END)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        listener.join(1.0)  # a process that the trial has left may keep the pipe open


def _outcome(folder: Path, code: int | None) -> Outcome:
    outcome = Outcome(files={}, fault="", code=2, lost=code is not None and code < 0)
    if code == 0:
        for inner in ("records", "weights", "logs", "source"):
            for file in (folder / "run" / inner).glob("*"):
                if file.is_file():
                    outcome["files"][f"{inner}/{file.name}"] = file.read_bytes()
    elif (folder / "fault.json").is_file():
        fault = json.loads((folder / "fault.json").read_text(encoding="utf-8"))
        outcome["fault"], outcome["code"] = fault["text"], fault["code"]
    elif not outcome["lost"]:
        said = " ".join((folder / "messages").read_text(encoding="utf-8", errors="replace")[-TAIL:].split())
        ended = f"the process of the trial ended with exit code {code}: {said}"
        outcome["fault"] = f"{ended}; workers need invertbench as the command has it"
    return outcome
