"""Third-party data sets in files: from the suite to the report, and one message for each fault."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.cli.parser import main
from harness.core.errors import SuiteError, UserError
from harness.core.provenance.sources import Sources
from harness.core.records import blank_record
from harness.core.run_options import RunOptions
from harness.datasets import DATASETS, Splits, Store, find_dataset
from harness.execution.trial import execute
from harness.kinds.density.trial import DensityTrial
from harness.planning.settle import load_suite, settle

RAMPS = """\
from typing import Annotated

import numpy as np
from pydantic import Field

from harness.core.settings import Settings
from harness.datasets import Dataset, DatasetInfo, Splits


class RampOptions(Settings):
    side: Annotated[int, Field(ge=2, strict=True)] = Field(4, description="the side of an image")


class Ramps(Dataset):
    info = DatasetInfo(title="Images of noise", kind="image")
    options_model = RampOptions

    def shape(self, options):
        side = self.parse(options).side
        return (1, side, side)

    def load(self, store, options):
        images = np.random.default_rng(0).integers(0, 16, size=(120, *self.shape(options)), dtype=np.uint8)
        return Splits(images[:80], images[80:100], images[100:], levels=16, description="noise")
"""
SUITE = """\
suite: own
kind: density
title: A data set of one's own
layers: {conv1x1: {}}
flow: {levels: 1, steps: 1, width: 8}
training: {steps: 2, evaluate_every: 2}
profiles:
  smoke:
    seeds: 1
    datasets:
      ramps: {data: "ramps.py:Ramps", options: {side: 4}}
      digits: {}
"""
STORE = Store(root=None, cache=Path("no-cache"), offline=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the folder `suite` with a suite and its data set, below the working directory."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "suite"
    place.mkdir()
    (place / "own.yaml").write_text(SUITE)
    (place / "ramps.py").write_text(RAMPS)
    return place


def planned(folder) -> dict[str, DensityTrial]:
    plan = settle(load_suite(str(folder / "own.yaml")), "smoke", "cpu").plan()[0]
    return {trial.data.label: trial for trial in plan.trials}


@pytest.mark.system
def test_from_the_suite_to_the_report(folder, no_figures, capsys):
    suite = str(folder / "own.yaml")
    assert main(["validate", suite]) == 0
    assert main(["run", suite, "--profile", "smoke", "--only", "dataset=ramps"]) == 0
    assert "ramps, bits/dim" in capsys.readouterr().out
    [path] = Path("reports/own/records").glob("*.json")
    record = json.loads(path.read_text())
    assert record["status"] == "ok" and record["notes"]["data"] == "noise"
    assert record["trial"]["data"]["name"] == "suite/ramps.py:Ramps"
    assert "ramps.py" in record["environment"]["sources"]
    (folder / "ramps.py").write_text("raise SystemExit('a report runs no third-party code')\n")
    assert main(["report", "reports/own"]) == 0
    assert "ramps, bits/dim" in capsys.readouterr().out
    path.unlink()
    assert main(["report", "reports/own"]) == 1
    assert "ramps, per dim" in capsys.readouterr().out


def test_a_file_is_found_beside_the_suite_then_in_the_working_directory(folder, tmp_path, monkeypatch):
    dataset = find_dataset("ramps.py:Ramps", folder)
    assert dataset.name == "Ramps" and dataset.event_shape({"side": 6}) == (1, 6, 6)
    assert type(find_dataset("suite/ramps.py:Ramps")) is type(dataset)
    monkeypatch.chdir(folder)
    assert type(find_dataset("ramps.py:Ramps", tmp_path)) is type(dataset)
    package = tmp_path / "their_noise_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "noise.py").write_text(RAMPS)
    monkeypatch.syspath_prepend(tmp_path)
    assert type(find_dataset("their_noise_package.noise:Ramps")).__module__ == "their_noise_package.noise"


def test_a_registered_data_set_named_by_its_file_is_the_same_class():
    for name, cls in DATASETS.items():
        file = Path(__file__).parents[3] / f"{cls.__module__.replace('.', '/')}.py"
        assert type(find_dataset(f"{file}:{cls.__name__}")) is cls, name


def test_a_changed_file_changes_trial_ids_and_invalidates_the_plan(folder):
    before = planned(folder)
    assert before["digits"].data.source is None and "source" not in before["digits"].data.model_dump()
    assert "ramps.py" in Sources().of(before["ramps"])
    (folder / "ramps.py").write_text(RAMPS + "ODD = 1\n")
    after = planned(folder)
    assert {label for label in before if before[label].id != after[label].id} == {"ramps"}
    record = execute(before["ramps"], RunOptions(folder), {}, lambda *_: None, lambda trial, *_: blank_record(trial))
    assert record.status == "error" and "ramps.py has changed since the run was planned" in record.reason


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("ramps.py:Ramp", ["no class 'Ramp' (did you mean Ramps?)", "the data sets in it are Ramps"]),
        ("ramps.py:RampOptions", ["not a subclass of harness.datasets.Dataset", "the data sets in it are Ramps"]),
        ("missing.py:Ramps", ["data set 'missing.py:Ramps'", "there is no such file", "suite/missing.py"]),
        ("no_such_package:Ramps", ["No module named 'no_such_package'"]),
        ("broken.py:Ramps", ["broken.py:2", "SyntaxError"]),
        ("digits.py", ["FILE.py:CLASS"]),
    ],
)
def test_a_wrong_name_is_reported_in_one_line_with_its_position(folder, spec, parts):
    (folder / "broken.py").write_text("x = 1\ndef broken(:\n")
    (folder / "own.yaml").write_text(SUITE.replace("ramps.py:Ramps", spec))
    with pytest.raises(SuiteError) as caught:
        load_suite(str(folder / "own.yaml"))
    message = str(caught.value)
    assert message.startswith(f"{folder / 'own.yaml'}:11:21: ") and "\n" not in message
    for part in parts:
        assert part in message


def test_the_shape_of_third_party_data_is_checked_against_the_flow(folder):
    (folder / "own.yaml").write_text(SUITE.replace("side: 4", "side: 5"))
    with pytest.raises(SuiteError, match=r"own\.yaml:11:7: ramps \(smoke\): event shape \(1, 5, 5\) with levels = 1"):
        load_suite(str(folder / "own.yaml"), shapes=True)
    (folder / "own.yaml").write_text(SUITE.replace("side: 4", "sid: 4"))
    with pytest.raises(SuiteError, match=r"own\.yaml:11:54: Ramps: no option 'sid'; did you mean side\?"):
        load_suite(str(folder / "own.yaml"), shapes=True)


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("    def load(", "    def other(", ["does not implement load"]),
        ("    info = ", "    no_info = ", ["no description", "info = DatasetInfo(title=..., kind=...)"]),
        ("    info = ", "    def __init__(self, x): ...\n    info = ", ["its constructor fails: TypeError"]),
        ("return (1, side, side)", "return {}[side]", ["shape fails at", "ramps.py:20: KeyError: 4"]),
        ("return (1, side, side)", "return (1, side)", ["shape returns (1, 4)", "3 positive whole numbers"]),
        ("        images = ", "        {}[0]\n        images = ", ["load fails at", "ramps.py:23: KeyError: 0"]),
        ("return Splits", "return len", ["load fails at", "TypeError"]),
        ("        return Splits", "        return None\n        return Splits", ["load returns NoneType"]),
        ("*self.shape(options))", "1, 8, 8)", ["load returns events (1, 8, 8), and shape returns (1, 4, 4)"]),
        ("levels=16", "levels=8", ["train split has values 0..15; 8 levels are 0..7"]),
    ],
)
def test_a_fault_of_the_class_is_reported_in_one_line(folder, old, new, parts):
    assert old in RAMPS
    (folder / "ramps.py").write_text(RAMPS.replace(old, new))
    with pytest.raises(UserError) as caught:
        dataset = find_dataset("ramps.py:Ramps", folder)
        dataset.event_shape({})
        dataset.check(STORE, {})
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_a_load_that_raises_ends_a_run_before_any_trial(folder, capsys):
    (folder / "ramps.py").write_text(RAMPS.replace("        images = ", "        {}[0]\n        images = "))
    assert main(["run", str(folder / "own.yaml"), "--profile", "smoke"]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error == f"data set Ramps: load fails at {folder / 'ramps.py'}:23: KeyError: 0"
    assert not Path("reports").exists()


@pytest.mark.system
def test_the_content_that_a_class_loads_is_part_of_the_trial(folder, no_figures, capsys):
    (folder / "ramps.py").write_text(RAMPS.replace("default_rng(0)", "default_rng(int(open('seed').read()))"))
    printed = []
    for seed in ("1", "1", "2"):
        Path("seed").write_text(seed)
        assert main(["run", str(folder / "own.yaml"), "--profile", "smoke", "--only", "dataset=ramps"]) == 0
        printed.append(capsys.readouterr().out)
    assert "nothing to run" in printed[1] and "data have changed" not in printed[1]
    assert "nothing to run" not in printed[2] and "ramps.py:Ramps: its data have changed" in printed[2]


def test_a_class_that_registers_itself_in_its_file_is_third_party(folder, monkeypatch):
    monkeypatch.setattr("harness.datasets.base.DATASETS", dict(DATASETS))
    (folder / "ramps.py").write_text(RAMPS.replace("(Dataset)", '(Dataset, name="registered-ramps")'))
    dataset = find_dataset("ramps.py:Ramps", folder)
    assert dataset.check(STORE, {}).checksum == dataset.load(STORE, {}).digest()


def test_the_digest_of_splits_is_of_all_that_their_density_depends_on():
    train, held_out = np.zeros((4, 1, 2, 2), np.uint8), np.zeros((2, 1, 2, 2), np.uint8)
    splits = Splits(train, held_out, held_out, 16, "zeros")
    ones = {"train": train + 1, "validation": held_out + 1, "test": held_out + 1}
    others = [replace(splits, **{name: values}) for name, values in ones.items()]
    others += [replace(splits, levels=8), replace(splits, no_floor="filtered")]
    others += [Splits(*(part.astype(np.int16) for part in (train, held_out, held_out)), 16, "zeros")]
    digests = {one.digest() for one in (splits, *others)}
    assert len(digests) == 1 + len(others)
    assert replace(splits, description="other words").digest() == splits.digest()
