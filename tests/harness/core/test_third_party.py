"""A suite names layers, data sets and flows of an installed package by their modules."""

import sys

import pytest

from harness.core.errors import SuiteError
from harness.core.provenance.sources import Sources
from harness.planning.settle import load_suite, settle

CODE = '''\
import numpy as np

from flows.baselines.realnvp import RealNVP
from harness.datasets import Dataset, DatasetInfo, Splits
from layers.conv1x1 import Conv1x1


class Theirs(Conv1x1):
    """A layer of another package."""


class Noise(Dataset):
    info = DatasetInfo(title="Noise of another package", kind="image")

    def shape(self, options):
        return (1, 4, 4)

    def load(self, store, options):
        images = np.random.default_rng(0).integers(0, 16, size=(120, 1, 4, 4), dtype=np.uint8)
        return Splits(images[:80], images[80:100], images[100:], levels=16, description="noise")


class TheirFlow(RealNVP):
    """A flow of another package."""
'''
SUITE = """\
suite: installed
kind: density
layers: {theirs: {layer: "their_things.parts:Theirs"}, conv1x1: {}}
flows: {their-flow: {baseline: "their_things.parts:TheirFlow"}}
flow: {levels: 1, steps: 1, width: 8}
training: {steps: 2, evaluate_every: 2}
profiles: {smoke: {datasets: {noise: {data: "their_things.parts:Noise"}}}}
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a folder on sys.path in which the package `their_things` is installed."""
    code = tmp_path / "their_things"
    code.mkdir()
    (code / "__init__.py").touch()
    (code / "parts.py").write_text(CODE)
    metadata = tmp_path / "their_code-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: their_code\nVersion: 1.2\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("their_things")]:
        del sys.modules[name]


def test_a_suite_names_the_code_of_a_package(package):
    (package / "own.yaml").write_text(SUITE)
    suite = load_suite(package / "own.yaml", shapes=True)
    plan = settle(suite, "smoke", "cpu").plan()[0]
    more = settle(suite, "smoke", "cpu", layers=["layers.periodic:Periodic"]).plan()[0]
    assert more.rows == ("theirs", "conv1x1", "Periodic", "their-flow"), "after the layers, before whole flows"
    named = {(trial.data.name, trial.layer.row, trial.layer.layer, trial.layer.baseline) for trial in plan.trials}
    noise, parts = "their_things.parts:Noise", "their_things.parts"
    assert named == {
        (noise, "theirs", f"{parts}:Theirs", False),
        (noise, "conv1x1", "conv1x1", False),
        (noise, "their-flow", f"{parts}:TheirFlow", True),
    }
    assert {(f"{parts}:{name}", package) for name in ("Theirs", "TheirFlow", "Noise")} == {*suite.third_party}
    checked = {trial.layer.row for trial in plan.trials if trial.layer.check_key is not None}
    assert checked == {"theirs"}, "check-layer runs before the trials of a third-party layer"
    assert all("their_things" in Sources().of(trial) for trial in plan.trials), "an installed package, by its version"


@pytest.mark.parametrize(
    ("old", "new", "place", "parts"),
    [
        ("parts:Noise", "lost:Noise", "7:", ["No module named 'their_things.lost'"]),
        ("their_things.parts:TheirFlow", "elsewhere", "4:32: ", ["known: maf, ", "or package.module:CLASS"]),
        ("their_things.parts:TheirFlow", "flow.py:TheirFlow", "4:32: ", ["or package.module:CLASS"]),
    ],
)
def test_a_fault_is_one_message_with_its_place(package, old, new, place, parts):
    (package / "own.yaml").write_text(SUITE.replace(old, new))
    with pytest.raises(SuiteError) as caught:
        load_suite(package / "own.yaml")
    message = str(caught.value)
    assert f"own.yaml:{place}" in message and "\n" not in message
    for part in parts:
        assert part in message
