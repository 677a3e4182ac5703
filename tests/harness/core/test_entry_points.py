"""Entry points of installed packages: found by name, listed without an import, and one message for each fault."""

import subprocess
import sys

import pytest

from harness.cli import list as listing
from harness.core.errors import SuiteError, UserError
from harness.core.layer_classes import resolve_layer
from harness.datasets import find_dataset
from harness.planning.settle import load_suite, settle
from layers import LAYERS

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
BROKEN = """\
from layers.conv1x1 import Conv1x1


class Half(Conv1x1, name="half-registered"): ...


raise OSError("no such device")
"""
ENTRY_POINTS = """\
[invertbench.layers]
theirs = their_things.parts:Theirs
broken = their_things.broken:Half
conv1x1 = their_things.parts:Theirs
missing = their_things.parts:Mising
bare = their_things

[invertbench.datasets]
their-noise = their_things.parts:Noise
lost = their_things.lost:Noise

[invertbench.flows]
their-flow = their_things.parts:TheirFlow
lost-flow = their_things.lost:Flow
"""
SUITE = """\
suite: installed
kind: density
layers: {theirs: {}, conv1x1: {}}
flows: {their-flow: {}}
flow: {levels: 1, steps: 1, width: 8}
training: {steps: 2, evaluate_every: 2}
profiles: {smoke: {datasets: {their-noise: {}}}}
"""


def install(folder, package, entry_points):
    metadata = folder / f"{package.replace('-', '_')}-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Return a folder on sys.path in which the package `their-things` is installed."""
    code = tmp_path / "their_things"
    code.mkdir()
    for name, text in {"__init__": "", "parts": CODE, "broken": BROKEN}.items():
        (code / f"{name}.py").write_text(text)
    install(tmp_path, "their-things", ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("their_things")]:
        del sys.modules[name]


def test_a_suite_names_what_packages_install(packages):
    (packages / "own.yaml").write_text(SUITE)
    plan = settle(load_suite(packages / "own.yaml", shapes=True), "smoke", "cpu").plan()[0]
    named = {(trial.data.name, trial.layer.row, trial.layer.layer, trial.layer.baseline) for trial in plan.trials}
    noise, parts = "their_things.parts:Noise", "their_things.parts"
    assert named == {
        (noise, "theirs", f"{parts}:Theirs", False),
        (noise, "conv1x1", "conv1x1", False),
        (noise, "their-flow", f"{parts}:TheirFlow", True),
    }
    [third_party] = [trial.layer for trial in plan.trials if trial.layer.row == "theirs"]
    assert ("their_things.parts:Theirs", packages) in load_suite(packages / "own.yaml").third_party
    assert third_party.check_key is not None, "check-layer runs before the trials of a third-party layer"


def test_names_of_the_project_have_precedence(packages):
    assert resolve_layer("conv1x1").__module__ == "layers.conv1x1"
    assert resolve_layer("theirs").__module__ == "their_things.parts"
    assert find_dataset("their-noise").info.title == "Noise of another package"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("broken", ["entry point invertbench.layers: broken = their_things.broken:Half", "OSError: no such device"]),
        ("missing", ["has no class 'Mising'; the layers in it are"]),
        ("bare", ["must name package.module:CLASS"]),
        ("twice", ["offered twice: package others 1.2", "and package their-others 1.2", "as package.module:CLASS"]),
        ("their", ["did you mean theirs"]),
    ],
)
def test_a_fault_is_one_message_that_names_the_package(packages, name, parts):
    for package in ("others", "their-others"):
        install(packages, package, "[invertbench.layers]\ntwice = their_things.parts:Theirs\n")
    before = dict(LAYERS)
    (packages / "own.yaml").write_text(SUITE.replace("theirs:", f"{name}:"))
    with pytest.raises(SuiteError) as caught:
        load_suite(packages / "own.yaml")
    message = str(caught.value)
    assert "own.yaml:3:10: layer" in message and "\n" not in message
    for part in (*parts, "package " if name != "their" else name):
        assert part in message
    assert before == LAYERS, "a failed import leaves no registered class"
    with pytest.raises(UserError):
        resolve_layer(name)


def test_lists_show_them_and_the_reason_why_one_cannot_be_used(packages):
    layers, datasets, flows = listing.layers(), listing.datasets(), " ".join(listing.flows().split())
    origin = "(package their-things 1.2, entry point invertbench.layers: theirs = their_things.parts:Theirs)"
    assert f"\n\ntheirs: their_things.parts:Theirs {origin}" in layers
    assert "\n\ntheir-noise: Noise of another package\n  shape      1x4x4" in datasets
    assert "lost: data set 'lost' (package their-things 1.2" in datasets
    assert "no module 'their_things.lost'" in datasets and "\n\nwaveforms: " in datasets
    assert "their-flow A flow of another package." in flows and "flow 'lost-flow' (package their-things 1.2" in flows


def test_layers_are_listed_without_importing_them(packages):
    code = f"import sys; sys.path.insert(0, {str(packages)!r}); from harness.cli.list import layers; "
    code += "assert 'their_things.parts:Theirs' in layers(); print({'torch', 'their_things'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
