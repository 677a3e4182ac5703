"""Layers that fail in every way during training: a failure affects one trial alone."""

import re
import sys
from pathlib import Path

import pytest

from harness.cli.parser import main
from harness.core.records import read_record
from harness.planning.plan import Plan

LAYERS = """\
import ctypes
import os
import signal

import torch

from layers.conv1x1 import Conv1x1


class Faulty(Conv1x1):
    def forward(self, x):
        y, log_det = super().forward(x)
        if torch.is_grad_enabled():
            self.calls = getattr(self, "calls", 0) + 1
            if self.calls == 5:
                y = self.fault(y)
        return y, log_det


class Segfaults(Faulty):
    def fault(self, y):
        ctypes.string_at(0)


class TakesMemory(Faulty):
    def fault(self, y):
        kept = []
        while True:
            kept.append(torch.ones(1 << 21))


class Hangs(Faulty):
    def fault(self, y):
        ctypes.PyDLL(None).sleep(600)


class Raises(Faulty):
    def fault(self, y):
        raise ValueError("a fault of the layer")


class ReturnsNan(Faulty):
    def fault(self, y):
        return y * float("nan")


class IsKilled(Faulty):
    def fault(self, y):
        os.kill(os.getpid(), signal.SIGKILL)
"""

pytestmark = pytest.mark.system

SUITE = """\
suite: faults
kind: density
title: Faults among the healthy
timeout: 12
memory: 1GiB
layers:
  first: {layer: conv1x1}
  segfaults: {layer: "faulty.py:Segfaults"}
  takes memory: {layer: "faulty.py:TakesMemory"}
  hangs: {layer: "faulty.py:Hangs"}
  raises: {layer: "faulty.py:Raises"}
  returns nan: {layer: "faulty.py:ReturnsNan"}
  is killed: {layer: "faulty.py:IsKilled"}
  last: {layer: woodbury, options: {rank_channels: 1, rank_space: 1}}
training: {steps: 8, batch_size: 16, evaluate_every: 4}
profiles:
  quick:
    flow: {levels: 1, steps: 1, width: 4, mixer: none}
    datasets:
      digits: {}
"""

EXPECTED = {
    "first": ("ok", "None"),
    "segfaults": ("killed", r"SIGSEGV \(Segmentation fault\)"),
    "takes memory": ("oom", r"held .* of memory, and may hold 1.0 GiB"),
    "hangs": ("timeout", "longer than 12 s"),
    "raises": ("error", r"ValueError: a fault of the layer \(faulty.py:"),
    "returns nan": ("diverged", "at step 5"),
    "is killed": ("killed", "SIGKILL"),
    "last": ("ok", "None"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the exit code, {row: record} and the table."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "faulty.py").write_text(LAYERS)
    (folder / "faults.yaml").write_text(SUITE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        code = main(["run", "faults.yaml", "--out", "out", "--unchecked"])
    out = folder / "out" / "faults"
    records = {trial.layer.row: read_record(out / "records" / f"{trial.id}.json") for trial in Plan.load(out).trials}
    return code, records, (out / "table.md").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="a memory limit needs /proc")
@pytest.mark.parametrize("row", EXPECTED)
def test_each_fault_affects_only_its_own_trial(run, row):
    status, words = EXPECTED[row]
    record = run[1][row]
    assert record.status == status, record.reason
    assert re.search(words, str(record.reason))
    assert record.environment["sources"] and "git" in record.environment


@pytest.mark.skipif(sys.platform != "linux", reason="a memory limit needs /proc")
def test_the_report_has_every_fault(run):
    code, records, table = run
    assert code == 1 and set(records) == set(EXPECTED)
    assert all(row["check"] == "unchecked" for row in records["returns nan"].rows)
    assert "8 trials: 2 ok, 1 diverged, 1 error, 2 killed, 1 oom, 1 timeout" in table
    assert "Segmentation fault" in records["segfaults"].notes["log"]
    assert Path(records["raises"].reason.rpartition("(")[2].partition(":")[0]) == Path("faulty.py")
