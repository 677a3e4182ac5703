"""Parameters of cluster jobs, from `cluster:` of a suite and from `--cluster`."""

import pytest

from harness.core.errors import SuiteError, UserError
from harness.core.run_options import RunOptions
from harness.core.settings import FlowSettings, LayerRef
from harness.execution.slurm.slurm import parameters, submit
from harness.kinds.parameters.trial import ParametersTrial
from harness.planning.cluster import Cluster, cluster_of
from harness.planning.settle import load_suite

SUITE = """\
suite: tiny
kind: parameters
title: Tiny
layers: {conv1x1: {}}
cluster:
  partition: long
  time: 2 h
  options: {nice: 100}
profiles:
  quick: {widths: [8], datasets: {digits: {}}}
"""


def trial(**changes):
    layer = LayerRef(row="one", layer="conv1x1")
    return ParametersTrial(
        suite="s", profile="smoke", label="any", shape=(2, 4), layer=layer, flow=FlowSettings(), **changes
    )


def test_the_command_line_takes_precedence_over_the_suite(tmp_path):
    (tmp_path / "tiny.yaml").write_text(SUITE)
    given = load_suite(tmp_path / "tiny.yaml").cluster
    texts = [
        "time=90 min",
        "partition=short",
        "options.reservation=lab",
        "throttle=2",
        "partition=night",
        "memory=3GiB",
    ]
    cluster = cluster_of(given, [*texts, "memory=3GiB"])
    assert cluster == Cluster(
        partition="night", time=5400.0, throttle=2, memory=3 << 30, options={"nice": 100, "reservation": "lab"}
    )
    asked = parameters([trial(threads=3)], cluster)
    names = ("partition", "time", "cpus_per_task", "array_parallelism")
    assert [asked[name] for name in names] == ["night", 90, 3, 2]
    assert asked["additional_parameters"] == {"requeue": True, "nice": 100, "reservation": "lab", "mem": "3072M"}
    assert asked["gres"] is None and asked["exclusive"] is None and asked["use_srun"] is False


def test_a_time_is_rounded_up_and_a_trial_on_cuda_asks_for_a_gpu():
    asked = parameters([trial(device="cuda")], Cluster(time="61 s"))
    assert (asked["time"], asked["gres"], asked["exclusive"], asked["array_parallelism"]) == (2, "gpu:1", None, 1)
    assert parameters([trial(device="cuda")], Cluster(gres="gpu:a100:1"))["gres"] == "gpu:a100:1"
    assert Cluster(gres="gpu:a100:1").device == "cuda" and Cluster().device == "cpu"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time", "KEY=VALUE"),
        ("time=soon", "'soon' is not a number with a unit"),
        ("time=0", "leaves a trial no time"),
        ("partition=5", "partition: expected a string"),
        ('partition="a\\nb"', "one line of printable text"),
        ("throttle=0", "throttle: the number 0 must be at least 1"),
        ("trottle=2", "did you mean throttle?"),
        ("heartbeat=0", "not between 0.1 s and 10 min"),
        ("options.wrap=ls", "set by this program"),
        ("options.Nice=1", "no long option of sbatch"),
        ('options.comment="a\\nrm x"', "one line of printable text"),
        ("options.nice=[1]", "write text, a whole number, or true"),
        ("options=5", "expected a mapping"),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_it(text, words):
    with pytest.raises(SuiteError, match="--cluster ") as error:
        cluster_of(Cluster(), ["throttle=3", text])
    assert words in str(error.value) and "\n" not in str(error.value)


def test_faults_of_the_cluster_section_have_a_place_in_the_suite(tmp_path):
    (tmp_path / "tiny.yaml").write_text(SUITE.replace("2 h", "soon").replace("nice", "array"))
    with pytest.raises(SuiteError) as error:
        load_suite(tmp_path / "tiny.yaml")
    lines = str(error.value).splitlines()
    assert [line.split(": ")[0].rpartition("/")[2] for line in lines] == ["tiny.yaml:7:9", "tiny.yaml:8:13"]


def test_without_slurm_submitting_is_a_user_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"sbatch is missing here.*--executor local"):
        submit([trial()], RunOptions(tmp_path), Cluster())
    assert not list(tmp_path.iterdir())
