"""A suite names layers, data sets and flows of a package by their modules, or by its entry points."""

import subprocess
import sys

import pytest

from harness.cli import list as listing
from harness.core.errors import SuiteError
from harness.core.layer_classes import resolve_layer
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
BY_ENTRY_POINT = """\
suite: installed
kind: density
layers: {theirs: {}, conv1x1: {}}
flows: {their-flow: {}}
flow: {levels: 1, steps: 1, width: 8}
training: {steps: 2, evaluate_every: 2}
profiles: {smoke: {datasets: {noise: {data: their-noise}}}}
"""
ENTRY_POINTS = """\
[invertbench.layers]
theirs = their_things.parts:Theirs
conv1x1 = their_things.parts:Theirs
missing = their_things.parts:Mising
bare = their_things
twice = their_things.parts:Theirs

[invertbench.datasets]
their-noise = their_things.parts:Noise

[invertbench.flows]
their-flow = their_things.parts:TheirFlow
"""


def install(folder, package, entry_points):
    metadata = folder / f"{package}-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a folder on sys.path in which the package `their_things` is installed."""
    code = tmp_path / "their_things"
    code.mkdir()
    (code / "__init__.py").touch()
    (code / "parts.py").write_text(CODE)
    install(tmp_path, "their_code", ENTRY_POINTS)
    install(tmp_path, "others", "[invertbench.layers]\ntwice = their_things.other:Theirs\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("their_things")]:
        del sys.modules[name]


@pytest.mark.parametrize("text", [SUITE, BY_ENTRY_POINT])
def test_a_suite_names_the_code_of_a_package(package, text):
    (package / "own.yaml").write_text(text)
    suite = load_suite(package / "own.yaml", shapes=True)
    plan = settle(suite, "smoke", "cpu").plan()[0]
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
        ("parts:Noise", "lost:Noise", "7:", ["no module 'their_things.lost'"]),
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


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("missing", ["their_things.parts has no class 'Mising'; the layers in it are"]),
        ("bare", ["its entry point, their_things, must name package.module:CLASS"]),
        ("twice", ["offered by several packages", "their_things.other:Theirs, their_things.parts:Theirs"]),
        ("their", ["did you mean theirs"]),
    ],
)
def test_a_fault_of_an_entry_point_is_one_message_with_its_place(package, name, parts):
    (package / "own.yaml").write_text(BY_ENTRY_POINT.replace("theirs:", f"{name}:"))
    with pytest.raises(SuiteError) as caught:
        load_suite(package / "own.yaml")
    message = str(caught.value)
    assert "own.yaml:3:10: " in message and "\n" not in message
    for part in parts:
        assert part in message


def test_names_of_the_project_have_precedence(package):
    assert resolve_layer("conv1x1").__module__ == "layers.conv1x1"
    assert resolve_layer("theirs").__module__ == "their_things.parts"


def test_names_are_listed_without_importing_them(package):
    assert "\n\ntheir-flow: their_things.parts:TheirFlow (of" in listing.flows()
    assert "\n\ntheir-noise: their_things.parts:Noise (of an installed package)" in listing.datasets()
    code = f"import sys; sys.path.insert(0, {str(package)!r}); from harness.cli.list import layers; "
    code += (
        "assert '\\ntheirs: their_things.parts:Theirs' in layers(); print({'torch', 'their_things'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
