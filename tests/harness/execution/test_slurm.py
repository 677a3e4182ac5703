"""Trials as jobs of a real SLURM: submitted, interrupted, cancelled and resumed."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from small_slurm import SmallSlurm, missing

from harness.cli.parser import main
from harness.core.records import read_record
from harness.core.run_options import PROJECT

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

COUNTED = """\
suite: counted
kind: parameters
layers: {conv1x1: {}, householder: {layer: conv1x1, options: {parameterisation: qr}}, emerging: {}}
cluster: {throttle: 1, trials_per_job: 2}
profiles:
  quick: {widths: [8], flow: {levels: 1, steps: 1}, datasets: {digits: {}}}
"""

TIMED = """\
suite: timed
kind: runtime
layers: {conv1x1: {}}
profiles:
  quick: {timing: {warmup: 1, rounds: 2}, sweeps: {side: {shapes: [[2, 4, 4], [2, 6, 6]], batch: 2}}}
"""

# The layer of this suite pauses training while a file exists.
HELD = """\
suite: held
kind: density
layers: {held: {layer: "held.py:Held"}}
training: {learning_rate: 1e-2, steps: 40, batch_size: 200, evaluate_every: 5}
profiles:
  quick: {seeds: 3, flow: {levels: 1, steps: 1, width: 8}, datasets: {digits: {}}}
"""
LAYER = """\
import os
import time
from pathlib import Path

from layers import LAYERS

HOLD = Path(__file__).with_name("hold")


class Held(LAYERS["conv1x1"]):
    trained = 0

    def forward(self, x):
        if self.training and x.shape[0] == 200 and "SLURM_JOB_ID" in os.environ:  # not in check-layer
            Held.trained += 1
            while Held.trained > 10 and HOLD.exists():
                time.sleep(0.05)
        return super().forward(x)
"""
CLUSTER = ["--executor", "slurm"]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    if lacking := missing():
        pytest.skip(f"no SLURM here: {', '.join(lacking)} missing; install slurm-wlm")
    with SmallSlurm(tmp_path_factory.mktemp("slurm"), nodes=2) as cluster:
        yield cluster


@pytest.fixture
def cleared(slurm):
    """Return the cluster; a failed test may leave jobs, for which the next test would wait."""
    yield slurm
    slurm.clear()


@pytest.fixture
def start(cleared, started, tmp_path):
    """Return a function that starts a command in the test's folder."""
    return lambda *arguments: started(tmp_path, cleared.environment, "-m", "harness", *arguments)


@pytest.fixture
def harness(slurm, tmp_path, monkeypatch, capfd):
    """Run a command in this process; return its exit code and its output."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm.environment[name])
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    monkeypatch.chdir(tmp_path)

    def harness(*arguments):
        capfd.readouterr()
        code = main(arguments)
        return code, "".join(capfd.readouterr())

    return harness


def states(slurm):
    """Return the state of each job in the queue: {"7_0": "RUNNING"}."""
    lines = slurm.ask("squeue", "--noheader", "--array", "--states=all", "--format=%F_%K|%T").splitlines()
    return dict(line.strip().split("|") for line in lines)


def submissions(out):
    return sorted(out.glob("slurm/*/submission.json"))


def held_folder(tmp_path):
    """Write the held suite, whose trainings will pause; return its output folder."""
    (tmp_path / "held.yaml").write_text(HELD)
    (tmp_path / "held.py").write_text(LAYER)
    (tmp_path / "hold").touch()
    return tmp_path / "out" / "held"


def waiting(out, count):
    """Return whether this many trainings have paused, with a checkpoint of the step before."""
    steps = [max((int(path.stem) for path in folder.glob("*.ckpt")), default=0) for folder in out.glob("checkpoints/*")]
    return sum(step == 9 for step in steps) == count


def table(out):
    return [line for line in (out / "table.md").read_text().splitlines() if " s |" not in line]


def test_an_array_obeys_its_throttle_and_gives_the_results_of_a_local_run(slurm, tmp_path, start, harness, values):
    (tmp_path / "counted.yaml").write_text(COUNTED)
    before = set(states(slurm))
    before_umask = os.umask(0o002)
    run = start("run", "counted.yaml", "--executor", "slurm", "--out", "out")
    os.umask(before_umask)
    most = 0
    while run.poll() is None:
        now = [state for name, state in states(slurm).items() if name not in before]
        most = max(most, sum(state in ("RUNNING", "COMPLETING") for state in now))
        time.sleep(0.2)
    assert run.returncode == 0, run.output()
    assert most == 1, "throttle: 1 in the suite"
    out = tmp_path / "out" / "counted"
    [submission] = submissions(out)
    assert submission.parent.stat().st_mode & 0o777 == 0o700, "jobs run what is in it"
    assert harness("run", "counted.yaml", "--out", "here")[0] == 0
    here = tmp_path / "here" / "counted"
    assert values(out) == values(here) and table(out) == table(here)
    code, output = harness("run", "counted.yaml", "--executor", "slurm", "--out", "out")
    assert code == 0 and "nothing to run" in output and len(submissions(out)) == 1


def test_runtime_trials_are_one_job_alone_on_its_node(slurm, tmp_path, harness):
    (tmp_path / "timed.yaml").write_text(TIMED)
    before = set(states(slurm))
    code, output = harness("run", "timed.yaml", "--out", "out", *CLUSTER)
    assert code == 0, output
    [name] = set(states(slurm)) - before
    assert "OverSubscribe=NO" in slurm.ask("scontrol", "show", "job", name.partition("_")[0])
    assert len(list((tmp_path / "out" / "timed" / "records").glob("*.json"))) == 2


def test_interrupted_jobs_resume(slurm, tmp_path, start, harness, wait_for, values):
    out = held_folder(tmp_path)
    command = ["run", "held.yaml", "--out", "out", "--unchecked", "--checkpoint", "0", *CLUSTER]
    run = start(*command)
    wait_for(lambda: waiting(out, 3), run)
    array = next(name for name, state in states(slurm).items() if state == "RUNNING").partition("_")[0]

    # After Ctrl-C the jobs continue; no local run may use the folder, and no trial is submitted twice.
    run.send_signal(signal.SIGINT)
    assert run.wait(timeout=30) == 130
    assert f"cancel {Path('out', 'held')}" in run.output()
    code, output = harness("run", "held.yaml", "--out", "out")
    assert code == 2 and "trials of an earlier command use this folder" in output
    run = start(*command)
    wait_for(lambda: "3 trials of them were submitted before" in run.output(), run)
    # The time limit; the controller looks every 30 s. A limit before this run would let it submit the trial again.
    slurm.ask("scontrol", "update", f"JobId={array}_1", "EndTime=now+1")
    code, output = harness("status", "out")
    assert code == 1 and "on the cluster: 3 running" in output
    assert os.uname().nodename not in output.replace(str(tmp_path), ""), "no --host was given"

    slurm.ask("scancel", f"{array}_0")
    wait_for(lambda: {states(slurm)[f"{array}_{index}"] for index in (0, 1)} == {"CANCELLED", "TIMEOUT"}, run)
    output = harness("status", "out")[1]
    assert "1 running, 2 ended" in output and "DUE TO TIME LIMIT" in output, output

    # A node is lost with its job, and comes back; the controller queues the job again.
    slurm.kill_node()
    slurm.start_node()
    (tmp_path / "hold").unlink()
    assert run.wait(timeout=120) == 1, run.output()
    assert "Traceback" not in run.output() and run.output().count("has ended, and left no record") == 2
    assert len(submissions(out)) == 1
    [record] = (out / "records").glob("*.json")
    assert read_record(record).status == "ok" and "step 9" in read_record(record).notes["resumed"]

    code, output = harness(*command)
    assert code == 0, output
    records = [read_record(path) for path in (out / "records").glob("*.json")]
    assert ["step 9" in record.notes["resumed"] for record in records] == [True] * 3
    assert sorted(len(json.loads(path.read_text())["jobs"]) for path in submissions(out)) == [2, 3]
    assert harness("run", "held.yaml", "--out", "here", "--unchecked")[0] == 0
    assert values(out) == values(tmp_path / "here" / "held")


def test_cancel_ends_running_and_waiting_jobs(slurm, tmp_path, start, harness, wait_for):
    out = held_folder(tmp_path)
    options = ["--unchecked", "--checkpoint", "0", "--seeds", "2", "--jobs", "1"]
    run = start("run", "held.yaml", "--out", "out", *options, *CLUSTER)
    wait_for(lambda: waiting(out, 1), run)
    code, output = harness("status", "out")
    assert "1 running, 1 waiting" in output
    cancel = start("cancel", "out")
    assert cancel.wait(timeout=90) == 0 and "2 trials without a record" in cancel.output()
    assert run.wait(timeout=60) == 1, run.output()
    assert run.output().count("has ended, and left no record") == 2
    assert "2 ended" in harness("status", "out")[1]
    assert "no cluster job uses it" in harness("cancel", "out")[1]
    (tmp_path / "hold").unlink()
    code, output = harness("run", "held.yaml", "--out", "out", "--unchecked", "--seeds", "2", "--only", "seed=0")
    assert code == 0, output
    [record] = (out / "records").glob("*.json")
    assert "step 9" in read_record(record).notes["resumed"], "a local run resumes from the checkpoint of a job"


def test_a_refusal_of_sbatch_is_one_message(slurm, tmp_path, harness):
    (tmp_path / "counted.yaml").write_text(COUNTED)
    code, output = harness("run", "counted.yaml", "--executor", "slurm", "--cluster", "partition=none", "--out", "out")
    assert code == 2 and "sbatch failed: " in output and "partition" in output
    assert harness("run", "counted.yaml", "--out", "out")[0] == 0, "a refused submission leaves nothing behind"
