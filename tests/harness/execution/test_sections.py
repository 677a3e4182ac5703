"""The section `cluster:` of a suite, `--cluster` over it, and the options of sbatch that they become."""

import pytest

from harness import validate
from harness.core.errors import SuiteError, UserError
from harness.core.run_options import RunOptions
from harness.execution.executor import check_section
from harness.execution.executors.dask import Dask
from harness.execution.executors.slurm import Slurm, SlurmSection, resources
from harness.planning.suite import read_suite

SUITE = """\
suite: tiny
kind: parameters
title: Tiny
layers: {conv1x1: {}}
cluster:
  partition: long
  time: 2 h
  options: {nice: 100}
  address: tcp://127.0.0.1:8786
profiles:
  quick: {widths: [8], datasets: {digits: {}}}
"""


def test_the_command_line_takes_precedence_over_the_suite_and_each_executor_takes_its_keys(tmp_path, trial):
    (tmp_path / "tiny.yaml").write_text(SUITE)
    suite = read_suite(tmp_path / "tiny.yaml")
    check_section(suite)
    texts = ["time=90 min", "partition=short", "options.reservation=lab", "throttle=2", "partition=night"]
    section = Slurm(None, suite.cluster, [*texts, "memory=3GiB"]).section
    assert section == SlurmSection(
        partition="night", time=5400.0, throttle=2, memory=3 << 30, options={"nice": 100, "reservation": "lab"}
    )
    asked = resources([trial(threads=3)], section)
    assert {name: value for name, value in asked.items() if value} == {
        "partition": "night",
        "time": 90,
        "mem": "3072M",
        "cpus-per-task": 3,
        "nodes": 1,
        "ntasks": 1,
        "open-mode": "append",
        "requeue": True,
    }
    assert Dask(None, suite.cluster).section.address == "tcp://127.0.0.1:8786"
    with pytest.raises(
        UserError, match=r"^--executor dask needs the address of a scheduler .*address=tcp://HOST:PORT$"
    ):
        Dask(2, {"partition": "long"})


def test_a_time_is_rounded_up_and_a_trial_on_cuda_asks_for_a_gpu(trial):
    asked = resources([trial(device="cuda")], SlurmSection(time="61 s"))
    assert (asked["time"], asked["gres"], asked["exclusive"]) == (2, "gpu:1", None)
    gpus = Slurm(None, {"gres": "gpu:a100:1"})
    assert resources([trial(device="cuda")], gpus.section)["gres"] == "gpu:a100:1"
    assert [gpus.device("auto"), Slurm().device("auto"), Slurm().device("cuda")] == ["cuda", "cpu", "cuda"]


@pytest.mark.parametrize(
    ("executor", "text", "words"),
    [
        (Slurm, "time", "KEY=VALUE"),
        (Slurm, "time=soon", "the string 'soon' is not a time"),
        (Slurm, "partition=5", "partition: expected a string"),
        (Slurm, "throttle=0", "throttle: the number 0 must be at least 1"),
        (Slurm, "trottle=2", "did you mean throttle?"),
        (Slurm, "address=tcp://a:1", "unknown key 'address'"),
        (Slurm, "options.wrap=ls", "set by this program"),
        (Slurm, "options.nice=[1]", "options.nice"),
        (Slurm, "options=5", "expected a mapping"),
        (Dask, "address=a.b:8786", "'a.b:8786' is not the address of a scheduler"),
        (Dask, "address=", "None is not the address of a scheduler"),
        (Dask, "partition=gpu", "unknown key 'partition'"),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_it(executor, text, words):
    with pytest.raises(SuiteError, match="--cluster ") as error:
        executor(None, {}, [text])
    assert words in str(error.value) and "\n" not in str(error.value)


def test_faults_of_the_section_have_a_place_in_the_suite(tmp_path):
    (tmp_path / "tiny.yaml").write_text(SUITE.replace("2 h", "soon").replace("nice: 100", "nice: 1.5") + "\n")
    with pytest.raises(SuiteError) as error:
        check_section(read_suite(tmp_path / "tiny.yaml"))
    lines = str(error.value).splitlines()
    assert [line.split(": ")[0].rpartition("/")[2] for line in lines] == ["tiny.yaml:7:9", "tiny.yaml:8:12"]
    (tmp_path / "tiny.yaml").write_text(SUITE.replace("address", "adress"))
    with pytest.raises(SuiteError, match=r"tiny.yaml:9:3: unknown key 'adress' in cluster; did you mean address"):
        validate(tmp_path / "tiny.yaml")


def test_without_slurm_submitting_is_a_user_error(tmp_path, monkeypatch, trial):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"sbatch is missing here.*--executor local"):
        Slurm().submit([[trial()]], RunOptions(tmp_path))
    assert not list(tmp_path.glob("slurm/*"))
