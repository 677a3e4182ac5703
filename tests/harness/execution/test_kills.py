"""No process of a command outlives it, however and whenever it is ended: processes are counted after each kill."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
MARK = "INVERTBENCH_TEST_OF_KILLS"
SUITE = """\
suite: killed
kind: density
layers: {conv1x1: {}, scale: {}}
training: {steps: 4000, evaluate_every: 2}
profiles:
  smoke: {seeds: 2, flow: {levels: 1, steps: 1, width: 8}, datasets: {digits: {}}, threads: 1}
"""
SCRIPT = "import harness; harness.run('killed.yaml', profile='smoke', out='out', jobs=2)"
HARNESS = [sys.executable, "-m", "harness"]
COMMANDS = {
    "run": [*HARNESS, "run", "killed.yaml", "--profile", "smoke", "--out", "out", "--jobs", "2"],
    "harness.run": [sys.executable, "-c", SCRIPT],
    "check-layer": [*HARNESS, "check-layer", "butterfly"],
}

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


def stat(pid):
    """Return state and parent of a process."""
    state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    return state, int(parent)


def processes(mark):
    """Return process -> its parent, of all that have inherited the mark and have not ended."""
    alive = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (path / "environ").read_bytes():
                state, parent = stat(path.name)
                if state not in "ZX":
                    alive[int(path.name)] = parent
        except OSError:
            continue
    return alive


def imports(command, alive):
    """Return whether the fork server runs, which then imports."""
    return any(b"forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in alive)


def works(command, alive):
    """Return whether the fork server has forked: trials, or a check."""
    servers = {pid for pid in alive if b"forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes()}
    return any(parent in servers for parent in alive.values())


CASES = [("run", imports), ("harness.run", works), ("check-layer", works)]
OTHERS = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]


@pytest.mark.parametrize(
    ("name", "moment", "number"),
    [
        *((*case, signal.SIGKILL) for case in CASES),
        *((*case, OTHERS[number % 3]) for number, case in enumerate(CASES)),  # each at every moment
    ],
)
def test_no_process_is_left(tmp_path, name, moment, number):
    (tmp_path / "killed.yaml").write_text(SUITE)
    mark = uuid.uuid4().hex
    command = subprocess.Popen(
        COMMANDS[name],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(PROJECT), MARK: mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        reached = False
        while not reached:
            assert command.poll() is None, "it ended before the moment at which it was to be killed"
            alive = processes(mark)
            try:
                reached = command.pid in alive and moment(command.pid, alive)
            except OSError:  # a process that has ended meanwhile
                continue
            time.sleep(0.01)
        command.send_signal(number)
        command.wait(60)
        end = time.monotonic() + 10
        while (left := processes(mark)) and time.monotonic() < end:
            time.sleep(0.05)
        assert not left
    finally:
        for pid in processes(mark):
            os.kill(pid, signal.SIGKILL)
        command.wait()
