"""Trials on a real Dask cluster of processes that share no folder: results, deaths, refusals, interruption."""

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from small_dask import PROJECT, SmallDask

from harness.core.records import read_record

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

COUNTED = """\
suite: counted
kind: parameters
layers: {conv1x1: {}, emerging: {}}
profiles:
  quick: {widths: [8], flow: {levels: 1, steps: 1}, datasets: {digits: {}}}
"""
TUNED = """\
suite: tuned
kind: density
layers: {conv1x1: {}, butterfly: {}}
tuning:
  candidates: 2
  space: {training.learning_rate: {low: 1e-3, high: 1e-1, scale: log}}
training: {steps: 6, batch_size: 100, evaluate_every: 3}
profiles:
  quick: {flow: {levels: 1, steps: 1, width: 8}, datasets: {digits: {}}}
"""
TABLE = """\
suite: table
kind: density
layers: {conv1x1: {}}
training: {steps: 4, batch_size: 32, evaluate_every: 2}
profiles:
  quick:
    flow: {levels: 1, steps: 1, width: 8}
    datasets:
      walk: {data: csv, options: {file: walk.csv, columns: [east, north], length: 8, step: 0.01}}
"""
# The layer of this suite pauses training on a worker while a file exists, and leaves its process id.
HELD = """\
suite: held
kind: density
layers: {held: {layer: "mine/held.py:Held"}}
training: {steps: 6, batch_size: 200, evaluate_every: 3}
profiles:
  quick: {flow: {levels: 1, steps: 1, width: 8}, datasets: {digits: {}}}
"""
LAYER = """\
import os
import time

import beside
from layers import LAYERS


class Held(LAYERS["conv1x1"]):
    def forward(self, x):
        if self.training and "ON_WORKER" in os.environ:
            beside.PLACE.joinpath(f"pid{os.getpid()}").touch()
            while beside.PLACE.joinpath("hold").exists():
                time.sleep(0.05)
        return super().forward(x)
"""


@pytest.fixture
def dask(tmp_path):
    pytest.importorskip("distributed")
    cluster = SmallDask(tmp_path / "dask")
    yield cluster
    cluster.close()


@pytest.fixture
def folder(tmp_path):
    """Return the folder in which commands are given."""
    place = tmp_path / "command"
    (place / "mine").mkdir(parents=True)
    for name, text in (("counted", COUNTED), ("tuned", TUNED), ("held", HELD), ("table", TABLE)):
        (place / f"{name}.yaml").write_text(text)
    (place / "mine" / "held.py").write_text(LAYER)
    (place / "mine" / "beside.py").write_text(f"from pathlib import Path\n\nPLACE = Path({str(place)!r})\n")
    return place


@pytest.fixture
def start(started, folder):
    """Return a function that starts a command in the folder."""
    return lambda *arguments: started(folder, os.environ, "-m", "harness", *arguments)


@pytest.fixture
def harness(start):
    """Run a command in the folder; return its exit code and its output."""

    def harness(*arguments):
        process = start(*arguments)
        return code_of(process), process.output()

    return harness


def on(cluster, *more):
    return ("--executor", "dask", "--cluster", f"address={cluster.address}", *more)


def code_of(run):
    """Wait for the end of a command; return its exit code."""
    try:
        return run.wait(240)
    except subprocess.TimeoutExpired:
        pytest.fail(f"timed out: {run.output()}")


def training(folder):
    """Return the processes that have begun to train and are still there."""
    return [int(path.name[3:]) for path in folder.glob("pid*") if Path("/proc", path.name[3:]).exists()]


def records(out):
    return {path.stem: read_record(path) for path in sorted((out / "records").glob("*.json"))}


def test_results_are_those_of_a_local_run_to_the_last_bit(dask, folder, harness, values):
    dask.start_worker(threads=2)
    code, output = harness("run", "tuned.yaml", "--out", "out", "--only", "layer=conv1x1", *on(dask))
    assert code == 0 and len(records(folder / "out" / "tuned")) == 3, output
    code, output = harness("run", "tuned.yaml", "--out", "out", "--host", *on(dask))
    assert code == 0, output
    assert "3 ok, 3 to run" in output, "the first layer is not run again"
    code, output = harness("run", "tuned.yaml", "--out", "here")
    assert code == 0, output
    out = folder / "out" / "tuned"
    assert values(out) == values(folder / "here" / "tuned")
    assert len(values(out)[1]) == 2, "weights come back"
    assert {record.environment.get("host") for record in records(out).values()} == {None, os.uname().nodename}
    assert not list(dask.folder.glob("worker0/scratch/**/invertbench-*")), "a worker keeps nothing"


def test_a_trial_of_a_dead_worker_runs_on_a_second_and_no_third(dask, folder, start, harness, wait_for, values):
    (folder / "hold").touch()
    for _ in range(2):
        dask.start_worker(ON_WORKER="1")
    run = start("run", "held.yaml", "--unchecked", "--out", "out", *on(dask))
    [first] = wait_for(lambda: training(folder), run)
    [place] = dask.folder.glob("worker*/scratch/**/invertbench-*")
    victim = int(place.relative_to(dask.folder).parts[0].removeprefix("worker"))
    dask.workers[victim].kill()
    _, status = harness("status", "out")
    running = r"1 of its trials run now\n  \S+  running for \S+ \w+ \(worker tcp://127.0.0.1:\d+\)"
    assert re.search(running, status), status
    [second] = wait_for(lambda: [pid for pid in training(folder) if pid != first], run)
    assert "its worker ended" in run.output() and "it runs again" in run.output()
    wait_for(lambda: first not in training(folder), run)  # it ends with its worker
    dask.workers[1 - victim].kill()
    assert code_of(run) == 1, run.output()
    [record] = records(folder / "out" / "held").values()
    assert record.status == "killed" and "its worker ended, in each of 2 tries" in record.reason
    wait_for(lambda: second not in training(folder))

    (folder / "hold").unlink()
    run = start("run", "held.yaml", "--unchecked", "--out", "out", *on(dask))
    wait_for(lambda: "the run waits for one" in run.output(), run)
    dask.start_worker(ON_WORKER="1")
    assert code_of(run) == 0, run.output()
    assert harness("run", "held.yaml", "--unchecked", "--out", "here")[0] == 0
    assert values(folder / "out" / "held") == values(folder / "here" / "held")


ANSWERS = ("object", "exception", "OSError", "dict", "pickle", "no record", "other trial", "killed")


def test_workers_that_answer_with_nonsense_are_left_out_and_run_no_code_here(dask, folder, harness, wait_for):
    for answer in ANSWERS:
        dask.start_worker(answer=answer)
    dask.start_worker()
    (folder / "counted.yaml").write_text(COUNTED.replace("[8]", "[4, 8, 12, 16, 20]"))
    wait_for(lambda: len(list(dask.folder.glob("worker*/scratch/*/*/bad_dask_worker.py"))) == len(ANSWERS))
    code, output = harness("run", "counted.yaml", "--out", "out", *on(dask))
    assert code == 0 and "10 trials: 10 ok" in output, output
    assert output.count("gets no more trials: ") == len(ANSWERS) - 1 and "No space left on device" in output, output
    assert "Traceback" not in output and "\x1b" not in output and "printed" not in output, output
    assert not (dask.folder / "bomb").exists(), "the command has unpickled an object of a worker"


def test_the_end_of_the_scheduler_interrupts_the_run(dask, folder, start, wait_for):
    (folder / "hold").touch()
    dask.start_worker(ON_WORKER="1")
    run = start("run", "held.yaml", "--unchecked", "--out", "out", "--seeds", "2", *on(dask))
    wait_for(lambda: training(folder), run)
    dask.scheduler.kill()
    assert code_of(run) == 130, run.output()
    assert run.output().count("has ended, or has dropped this run") == 1
    assert "Traceback" not in run.output() and "distributed" not in run.output(), run.output()
    wait_for(lambda: not training(folder))
    assert not records(folder / "out" / "held")
    (folder / "hold").unlink()
    dask.start_scheduler()
    dask.start_worker(ON_WORKER="1")
    run = start("run", "held.yaml", "--unchecked", "--out", "out", "--seeds", "2", *on(dask))
    assert code_of(run) == 0, run.output()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_trials_end_with_their_command(dask, folder, start, number, wait_for):
    (folder / "hold").touch()
    worker = dask.start_worker(ON_WORKER="1")
    run = start("run", "held.yaml", "--unchecked", "--out", "out", *on(dask))
    wait_for(lambda: training(folder), run)
    run.send_signal(number)
    assert code_of(run) == (130 if number == signal.SIGINT else -9), run.output()
    wait_for(lambda: not training(folder), seconds=30)
    assert worker.poll() is None and "Traceback" not in run.output(), run.output()
    assert not records(folder / "out" / "held")


def test_data_are_those_of_the_command(dask, folder, harness):
    def write(place, first):
        place.mkdir(parents=True, exist_ok=True)
        lines = [f"{(7 * i) % 50 / 100},{(3 * i) % 40 / 100}" for i in range(1000)]
        (place / "walk.csv").write_text("\n".join(["east,north", f"0.1,{first}", *lines, ""]))

    write(folder / "data", 0.2)
    other, same, cache = (dask.folder / name for name in ("other", "same", "cache"))
    write(other, 0.3)
    write(same, 0.2)
    cache.mkdir()
    (cache / "kernels").symlink_to(Path(os.environ["INVERTBENCH_CACHE"]) / "kernels")
    command = ("run", "table.yaml", "--out", "out", "--data", "data")
    for place, words in ((dask.folder / "worker0", "walk.csv"), (other, "the run has prepared"), (same, None)):
        worker = dask.start_worker(INVERTBENCH_CACHE=str(cache), INVERTBENCH_DATA=str(place))
        code, output = harness(*command, *on(dask))
        worker.kill()
        if words is not None:
            assert code == 3 and words in output and "a worker's data root is its $INVERTBENCH_DATA" in output, output
            assert "Traceback" not in output and not records(folder / "out" / "table")
    assert code == 0, output


def test_another_source_is_refused(dask, folder, harness):
    copy = dask.folder / "copy"
    for part in ("csrc", "flows", "harness", "layers", "suites"):
        shutil.copytree(PROJECT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    path = copy / "layers" / "conv1x1.py"
    path.write_text(path.read_text() + "\nCHANGED = 1\n")
    worker = dask.start_worker(PYTHONPATH=str(copy))
    code, output = harness("run", "counted.yaml", "--out", "out", *on(dask))
    assert code == 2 and "layers/conv1x1.py changed" in output and "install the same version" in output, output
    worker.kill()

    dask.start_worker(blocked=True)
    code, output = harness("run", "counted.yaml", "--out", "out", *on(dask))
    assert code == 2 and "invertbench is not here" in output, output
    assert not records(folder / "out" / "counted")
