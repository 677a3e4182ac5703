"""Third-party layers in both stages: what a candidate's process holds, and which options are checked."""

import numpy as np
import pytest

from harness.cli.parser import main
from harness.core.records import read_record, write_record
from harness.core.run_options import PASSED, UNCHECKED
from harness.datasets import Store, find_dataset
from harness.execution.gate import REFUSED, refused, with_checks
from harness.execution.outcome import log_path
from harness.kinds.density.tuning.choice import NoChoice, choose
from harness.planning.settle import load_suite, settle
from harness.reporting.frame import Results

# The first layer looks through its process for the held-out splits, and prints a checksum of each.
LAYERS = """\
import gc

import numpy as np

from harness.datasets import Splits
from harness.pipeline.pipeline import Pipeline
from layers.conv1x1 import Conv1x1


def checksum(values):
    return int(np.asarray(values, dtype=int).reshape(-1).dot(np.arange(values.size)))


class Peeks(Conv1x1):
    peeked = False

    def forward(self, x):
        if not Peeks.peeked:
            Peeks.peeked = True
            for thing in gc.get_objects():
                if isinstance(thing, Splits):
                    print("seen", checksum(thing.test), flush=True)
                if isinstance(thing, Pipeline):
                    print("seen", checksum(thing.raw("test")[:].numpy()), flush=True)
        return super().forward(x)


class Picky(Conv1x1):
    def __init__(self, shape, fault: bool = False):
        super().__init__(shape)
"""
SUITE = """\
suite: peeking
kind: density
layers: {LAYER}
tuning:
  candidates: 2
  space: {training.learning_rate: {low: 1e-3, high: 1e-1, scale: log}}
training: {batch_size: 50, steps: 2}
profiles:
  quick: {flow: {levels: 1, steps: 1, width: 4}, datasets: {digits: {}}}
"""


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """Return a function that writes the suite with one row."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "third_party.py").write_text(LAYERS)

    def write(row):
        (tmp_path / "peeking.yaml").write_text(SUITE.replace("LAYER", row))
        return "peeking.yaml"

    return write


@pytest.mark.system
@pytest.mark.parametrize(("strategy", "number"), [("sobol", 2), ("halving", 3)])
def test_a_candidate_finds_validation_values_alone_in_its_process(suite, tmp_path, no_figures, strategy, number):
    splits = find_dataset("digits").load(Store.at(None, offline=True), {})
    held_out = {
        name: int(values.astype(int).reshape(-1).dot(np.arange(values.size))) for name, values in splits.parts().items()
    }
    out = tmp_path / "reports" / "peeking"
    options = ["--unchecked", "--set", f"tuning.strategy={strategy}"]
    assert main(["run", suite('peeks: {layer: "third_party.py:Peeks"}'), *options]) == 0
    seen = {}
    for trial in Results.read(out).plan.trials:  # those that ran
        found = [line.split()[1] for line in log_path(out, trial).read_text().splitlines() if line.startswith("seen")]
        assert len(found) >= 2, "splits and pipeline"
        seen[trial.slug] = set(map(int, found))
        row = read_record(out / "records" / f"{trial.id}.json").rows[0]
        assert row["check"] == UNCHECKED and (row.get("bits_per_dim") is None) == (trial.kind == "tuning")
    assert seen.pop("digits-peeks-s0") == {held_out["test"]}
    assert len(seen) == number and all(values == {held_out["validation"]} for values in seen.values())


def test_check_layer_examines_the_options_of_candidates(suite, leave, tmp_path):
    """A value that is refused loses its candidates; the final trial takes the check of the chosen one."""
    row = 'picky: {layer: "third_party.py:Picky", options: {fault: true}, tune: {fault: [true, false]}}'
    plan, _ = settle(load_suite(suite(row)), "quick", "cpu", settings=["tuning.candidates=3"]).plan()
    *candidates, final = plan.trials
    assert len(candidates) == 3
    by_fault = {dict(trial.layer.options)["fault"]: trial for trial in candidates}
    keys = {fault: trial.layer.check_key for fault, trial in by_fault.items()}
    checks = {keys[True]: f"{REFUSED} a fault", keys[False]: PASSED}
    checked = {layer for trial in plan.trials for layer in trial.layers_to_check}
    assert checked == {trial.layer for trial in candidates}
    for trial in candidates:
        record = refused(trial, checks)
        assert (record is None) == (trial.layer.check_key == keys[False])
        leave(trial, 3.0) if record is None else write_record(tmp_path / "records", record)
    assert refused(final, checks) is None
    write_record(tmp_path / "records", with_checks(leave(by_fault[False]), by_fault[False], checks))
    chosen = choose(final, tmp_path)
    assert (chosen.changes["layer.options.fault"], chosen.check) == (False, PASSED)
    for trial in candidates:
        write_record(tmp_path / "records", refused(trial, dict.fromkeys(checks, f"{REFUSED} a fault")))
    with pytest.raises(NoChoice, match="no candidate of the tuning won") as caught:
        choose(final, tmp_path)
    assert caught.value.status == "error" and "a fault" in str(caught.value)
