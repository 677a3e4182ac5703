"""A suite whose trials and supervisors are killed at random gives the same results as an undisturbed run."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.core.records import read_record

PROJECT = Path(__file__).resolve().parents[3]
TRIALS = 20  # with 8 candidates of the tuning

SUITE = """\
suite: shot
kind: density
layers:
  conv1x1: {}
  woodbury: {options: {rank_channels: 1, rank_space: 2}}
tuning:
  candidates: 2
  space: {training.learning_rate: {low: 1e-3, high: 1e-1, scale: log}}
training: {steps: 60, batch_size: 200, evaluate_every: 20, ema: all, ema_decay: 0.9}
profiles:
  quick:
    seeds: 3
    flow: {levels: 1, steps: 1, width: 8}
    datasets:
      digits: {}
      shuffled: {data: digits, permute: 3}
"""

COMMAND = [sys.executable, "-m", "harness", "run", "shot.yaml", "--checkpoint", "0.05", "--jobs", "2", "--out"]

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
    pytest.mark.timeout(3600),
]


def start(folder, out):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT)}
    with (folder / "output.txt").open("ab") as output:
        return subprocess.Popen([*COMMAND, out], cwd=folder, env=environment, stdout=output, stderr=output)


def parents():
    """Return {process: (parent, session)} of all running processes."""
    running = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] not in "ZX":
            running[int(stat.parent.name)] = (int(fields[1]), int(fields[3]))
    return running


def trials_of(supervisor):
    """Return the processes of running trials: grandchildren of the supervisor that lead a session."""
    processes = parents()
    children = {pid for pid, (parent, _) in processes.items() if parent == supervisor}
    return [pid for pid, (parent, session) in processes.items() if parent in children and session == pid]


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_at_random(run, generator):
    """Kill the supervisor or one of its trials at a random moment; return the process, or None if none was hit."""
    if generator.random() < 0.2:  # in any phase: planning, starting, training, reporting
        try:
            run.wait(generator.uniform(0, 12))
        except subprocess.TimeoutExpired:
            return run.pid if kill(run.pid) else None
        return None
    while run.poll() is None and not trials_of(run.pid):
        time.sleep(0.02)
    time.sleep(generator.uniform(0, 1))
    targets = trials_of(run.pid) if run.poll() is None else []
    if not targets:
        return None
    target = run.pid if generator.random() < 0.3 else generator.choice(targets)
    return target if kill(target) else None


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "shot.yaml").write_text(SUITE)
    assert start(folder, "out").wait() == 0, (folder / "output.txt").read_text()
    results = values(folder / "out" / "shot")
    assert len(results[0]) == TRIALS
    return results


@pytest.mark.parametrize("kills", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_kills_at_random_lose_nothing(undisturbed, tmp_path, kills, values, wait_for):
    (tmp_path / "shot.yaml").write_text(SUITE)
    generator = random.Random(kills)
    hits = rounds = resumed = 0
    run = start(tmp_path, f"round{rounds}")
    while hits < kills:
        trials = set(trials_of(run.pid))
        target = kill_at_random(run, generator)
        hits += target is not None
        if target == run.pid:
            run.wait()
            wait_for(lambda ended=trials: not parents().keys() & ended, seconds=3)
        if run.poll() is None:
            continue
        out = tmp_path / f"round{rounds}" / "shot"
        records = [read_record(path) for path in (out / "records").glob("*.json")]  # every record is readable
        assert run.returncode in (0, 1, -signal.SIGKILL), (tmp_path / "output.txt").read_text()
        if run.returncode == 0:  # all trials finished before the last kill: another round
            assert values(out) == undisturbed
            resumed += sum("resumed" in record.notes for record in records)
            rounds += 1
        run = start(tmp_path, f"round{rounds}")
    run.wait()
    last = start(tmp_path, f"round{rounds}")
    assert last.wait() == 0, (tmp_path / "output.txt").read_text()
    out = tmp_path / f"round{rounds}" / "shot"
    assert values(out) == undisturbed
    resumed += sum("resumed" in read_record(path).notes for path in (out / "records").glob("*.json"))
    assert resumed > 0, "no training was interrupted, so the test shows nothing"
    assert not list(out.rglob("*.tmp")) and not list((out / "checkpoints").glob("*/*"))
    assert not tracebacks((tmp_path / "output.txt").read_text())
    print(f"{hits} kills, {rounds + 1} rounds of {TRIALS} trials, {resumed} trainings resumed from a checkpoint")


def tracebacks(output):
    """Return the tracebacks in `output`, but for those of Python's fork server.

    If the supervisor is killed between its request for a process and the sending of what that process shall do, the new
    process prints EOFError from `_serve_one` of the standard library before any line of ours runs.
    """
    texts = re.findall(r"^Traceback .*?^\w[\w.]*(?:: .*?)?$", output, flags=re.MULTILINE | re.DOTALL)
    return [text for text in texts if not ("in _serve_one" in text and text.endswith("EOFError: Ran out of input"))]
