"""No process of a command outlives it, however and whenever it is ended: processes are counted after each kill."""

import os
import signal
import sys
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

MARK = "INVERTBENCH_TEST_OF_KILLS"
SUITE = """\
suite: killed
kind: density
layers: {conv1x1: {}, scale: {}}
training: {steps: 4000, evaluate_every: 2}
profiles:
  smoke: {seeds: 2, flow: {levels: 1, steps: 1, width: 8}, datasets: {digits: {}}, threads: 1}
"""
COMMANDS = {
    "run": ["-m", "harness", "run", "killed.yaml", "--profile", "smoke", "--out", "out", "--jobs", "2"],
    "harness.run": ["-c", "import harness; harness.run('killed.yaml', profile='smoke', out='out', jobs=2)"],
    "check-layer": ["-m", "harness", "check-layer", "butterfly"],
}

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


def processes(mark):
    """Return process -> its parent, of all that have inherited the mark and have not ended."""
    alive = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in (path / "environ").read_bytes():
                state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    alive[int(path.name)] = int(parent)
    return alive


def servers(alive):
    """Return the fork servers, which import as they start."""
    return {pid for pid in alive if b"forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes()}


def forked(alive):
    """Return the processes of trials, or of a check."""
    parents = servers(alive)
    return {pid for pid, parent in alive.items() if parent in parents}


CASES = [("run", servers), ("harness.run", forked), ("check-layer", forked)]
OTHERS = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]


@pytest.mark.parametrize(
    ("name", "moment", "number"),
    [
        *((*case, signal.SIGKILL) for case in CASES),
        *((*case, OTHERS[number % 3]) for number, case in enumerate(CASES)),  # each at every moment
    ],
)
def test_no_process_is_left(started, wait_for, tmp_path, name, moment, number):
    (tmp_path / "killed.yaml").write_text(SUITE)
    mark = uuid.uuid4().hex
    command = started(tmp_path, os.environ | {MARK: mark}, *COMMANDS[name])

    def reached():
        alive = processes(mark)
        with suppress(OSError):  # a process that has ended meanwhile
            return command.pid in alive and moment(alive)

    try:
        wait_for(reached, command, seconds=240)
        command.send_signal(number)
        command.wait(60)
        wait_for(lambda: not processes(mark), seconds=10)
    finally:
        for pid in processes(mark):
            os.kill(pid, signal.SIGKILL)
