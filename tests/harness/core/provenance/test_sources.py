"""The source that a result depends on: all files that can change it, and no others."""

import hashlib
import shutil
from importlib import metadata
from pathlib import Path

import pytest

from harness.core.provenance.sources import ROOMS, Sources, changes
from harness.core.settings import DataRef, FlowSettings, LayerRef, TrainingSettings
from harness.core.third_party import source_digest
from harness.kinds.density.trial import DensityTrial
from harness.kinds.parameters.trial import ParametersTrial
from harness.kinds.runtime.trial import RuntimeTrial

PROJECT = Path(__file__).resolve().parents[4]


def layer(name="butterfly"):
    return LayerRef(row="one", layer=name)


def density(name="butterfly", data="digits"):
    settings = {"layer": layer(name), "flow": FlowSettings(), "training": TrainingSettings(), "seed": 0}
    return DensityTrial(suite="s", profile="smoke", data=DataRef(label="d", name=data), **settings)


def test_a_density_trial_depends_on_layer_backbone_training_and_dataset():
    files = set(Sources().of(density()))
    expected = {"layers/base.py", "layers/butterfly.py", "layers/butterflies", "layers/conv1x1.py", "flows", "csrc"}
    expected |= {f"harness/{room}" for room in ("training", "evaluation", "pipeline", "audit", "kinds/density")}
    expected |= {"harness/core/flags.py", "harness/datasets/digits.py"}
    assert expected <= files
    foreign = {"layers/emerging.py", "layers", "harness/datasets", "harness/datasets/waveforms.py", "harness/cli"}
    foreign |= {"harness/kinds/runtime"}
    assert not foreign & files and not any("/figures" in file or "/tables" in file for file in files)
    assert {"harness/datasets/_signals", "harness/datasets/waveforms.py"} <= {*Sources().of(density(data="waveforms"))}
    assert {"layers/kaleidoscope.py", "layers/butterfly.py"} <= {*Sources().of(density("kaleidoscope"))}
    trial = density("maf").model_copy(update={"layer": LayerRef(row="one", layer="maf", baseline=True)})
    assert "flows/baselines/maf.py" in Sources().of(trial)
    assert {"zuko", "layers/adapters"} <= set(Sources().of(density("zuko.transforms:RotationTransform")))


def test_each_kind_of_trial_depends_on_its_own_source():
    timed = RuntimeTrial(
        suite="s", profile="smoke", sweep="a", shape=(2, 4), batch=1, layers=(layer(), layer("emerging")), operations=()
    )
    files = set(Sources().of(timed))
    assert {"layers/emerging.py", "layers/butterfly.py", "harness/timing", "harness/kinds/runtime"} <= files
    assert not {"harness/datasets/digits.py", "harness/kinds/density"} & files
    counted = ParametersTrial(suite="s", profile="smoke", label="a", shape=(2, 4), layer=layer(), flow=FlowSettings())
    files = set(Sources().of(counted))
    assert {*ROOMS, "harness/kinds/parameters"} <= files


EDITS = {  # file, old text, new text, the changed part
    "the layer": ("layers/woodbury.py", "torch.addmm(", "torch.addbmm(", "layers/woodbury.py"),
    "another layer": ("layers/emerging.py", "import torch", "import torch\n\nODD = 1", ""),
    "the backbone": ("flows/protocol.py", "import torch", "import torch\n\nODD = 1", "flows"),
    "the schedule": ("harness/training/updates.py", "betas=(0.9,", "betas=(0.8,", "harness/training"),
    "records": ("harness/core/records.py", "WHOLE = 1", "WHOLE = 2", ""),
    "a kernel": ("csrc/butterfly/cuda/tile.h", "#pragma once", "#pragma once\nint ODD = 1;", "csrc"),
}


def test_a_digest_changes_with_its_source(tmp_path, monkeypatch):
    """In a copy of the project."""
    for package in ("csrc", "layers", "flows", "harness"):
        shutil.copytree(PROJECT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("harness.core.provenance.sources.PROJECT", tmp_path)
    before = Sources().of(density("woodbury"))
    for edit, (path, old, new, changed) in EDITS.items():
        text = (tmp_path / path).read_text()
        assert old in text, edit
        (tmp_path / path).write_text(text.replace(old, new, 1))
        assert changes(before, Sources().of(density("woodbury"))) == [f"{changed} changed"] * bool(changed), edit
        (tmp_path / path).write_text(text)


def test_changed_sources_are_described():
    before, now = {"a.py": "1", "b.py": "2", "c.py": "3"}, {"b.py": "2", "c.py": "4", "d.py": "5"}
    assert changes(before, now) == ["a.py is gone", "c.py changed", "d.py is new"]


FILES = {
    "mine.py": "from layers.woodbury import Woodbury\nimport direct\n\n\nclass Mine(Woodbury):\n    pass\n",
    "direct.py": "import importlib as i\n\n\ndef f():\n    from parts import deep\n    i.import_module('named')\n",
    "parts/__init__.py": "",
    "parts/deep.py": "from . import deeper\nimport above\n",
    "parts/deeper.py": "import zuko\n",
    "above.py": "if False:\n    import conditional\n",
    "conditional.py": "",
    "named.py": "",
    "other.py": "",  # imported by none
}


@pytest.fixture
def followed_files(tmp_path, monkeypatch):
    """Return a folder with a layer and the files that it imports, which is not the working directory."""
    for name, text in FILES.items():
        (tmp_path / "code" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "code" / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "code"


@pytest.mark.parametrize("spec", ["code/mine.py:Mine", "mine:Mine"])
def test_the_imports_of_third_party_code_are_followed(followed_files, monkeypatch, spec):
    if spec == "mine:Mine":
        monkeypatch.syspath_prepend(followed_files)
    before = Sources().of(density(spec))
    names = {name for name in before if not name.startswith(("layers/", "flows", "harness/", "csrc"))}
    assert names == set(FILES) - {"other.py"} | {"zuko"} and "layers/woodbury.py" in before
    assert before["zuko"] == metadata.version("zuko")
    for name in FILES:
        with (followed_files / name).open("a") as file:
            file.write("\nODD = 1\n")
    assert changes(before, Sources().of(density(spec))) == [f"{name} changed" for name in sorted(names - {"zuko"})]


def test_the_digest_of_a_file_is_that_of_its_bytes_unless_it_imports_others(followed_files):
    alone = followed_files / "other.py"
    assert source_digest(alone) == hashlib.sha256(alone.read_bytes()).hexdigest()[:16]
    before = source_digest(followed_files / "mine.py")
    (followed_files / "parts" / "deeper.py").write_text("ODD = 1\n")
    assert source_digest(followed_files / "mine.py") != before


def test_a_file_that_the_source_names_is_part_of_its_digest(followed_files):
    path, weights = followed_files / "other.py", followed_files / "weights.npy"
    path.write_text('import numpy\nW = numpy.load(folder / "weights.npy") + numpy.load("hid" + "den.npy")\n')
    for digest_changes, changed in ((True, weights), (False, followed_files / "hidden.npy"), (True, weights)):
        before = source_digest(path)
        changed.write_bytes(changed.read_bytes() + b"x" if changed.exists() else b"x")
        assert (source_digest(path) != before) == digest_changes, changed.name
