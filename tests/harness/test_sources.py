"""Which source a result rests on: everything that can change it, and nothing else."""

import shutil
from pathlib import Path

import pytest

from harness.settings import (
    DataRef,
    DensityTrial,
    FlowSettings,
    LayerRef,
    ParametersTrial,
    RuntimeTrial,
    TrainingSettings,
)
from harness.sources import Sources, changes

PROJECT = Path(__file__).resolve().parents[2]


def layer(name="butterfly"):
    return LayerRef(row="one", layer=name)


def density(name="butterfly", data="digits", mixer="plu"):
    flow = FlowSettings(mixer=mixer)
    settings = {"layer": layer(name), "flow": flow, "training": TrainingSettings(), "seed": 0}
    return DensityTrial(suite="s", profile="smoke", data=DataRef(label="d", name=data), **settings)


def test_a_density_trial_rests_on_its_layer_the_backbone_the_training_and_the_loader():
    files = set(Sources().of(density()))
    expected = {
        "layers/base.py",
        "layers/butterfly.py",
        "layers/butterfly_factors.py",
        "layers/conv1x1.py",  # the mixer
        "flows/glow.py",
        "flows/couplings.py",
        "harness/trials/training.py",
        "harness/trials/updates.py",
        "harness/trials/evaluation.py",
        "harness/trials/pipeline.py",
        "harness/trials/audit.py",
        "harness/trials/flags.py",
        "harness/datasets/digits.py",
    }
    assert expected <= files
    foreign = {"layers/emerging.py", "layers/__init__.py", "harness/datasets/waveforms.py", "harness/commands.py"}
    foreign |= {"harness/trials/runtime.py", "harness/trials/checkpoints.py", "harness/records.py"}
    assert not foreign & files
    assert "layers/conv1x1.py" not in Sources().of(density("woodbury", mixer="none"))
    assert "harness/datasets/pulse_generator.py" in Sources().of(density(data="waveforms"))


def test_each_kind_of_trial_rests_on_its_own():
    timed = RuntimeTrial(
        suite="s", profile="smoke", sweep="a", shape=(2, 4), batch=1, layers=(layer(), layer("emerging")), operations=()
    )
    files = set(Sources().of(timed))
    assert {"layers/emerging.py", "layers/butterfly.py", "harness/trials/timing.py"} <= files
    assert "harness/trials/training.py" not in files
    counted = ParametersTrial(suite="s", profile="smoke", label="a", shape=(2, 4), layer=layer(), flow=FlowSettings())
    assert "harness/trials/timing.py" not in Sources().of(counted)


EDITS = {
    "the layer": ("layers/woodbury.py", "torch.addmm(", "torch.addbmm(", True),
    "a comment": ("layers/woodbury.py", "import torch", "import torch  # of course", False),
    "a docstring": ("layers/woodbury.py", '"""', '"""Well. ', False),
    "the layout": ("layers/woodbury.py", "import torch", "import torch\n\n", False),
    "another layer": ("layers/emerging.py", "import torch", "import torch\n\nODD = 1", False),
    "the backbone": ("flows/protocol.py", "import torch", "import torch\n\nODD = 1", True),
    "the schedule": ("harness/trials/updates.py", "BETAS = (0.9,", "BETAS = (0.8,", True),
    "records": ("harness/records.py", "FORMAT = 1", "FORMAT = 2", False),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_digest_changes_with_what_it_stands_for(tmp_path, monkeypatch, edit):
    """In a copy of the project."""
    for package in ("layers", "flows", "harness"):
        shutil.copytree(PROJECT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("harness.sources.PROJECT", tmp_path)
    starts = [tmp_path / "layers" / "woodbury.py", tmp_path / "harness" / "trials" / "density.py"]
    before = Sources()._closure(list(starts))
    path, old, new, differs = EDITS[edit]
    text = (tmp_path / path).read_text()
    assert old in text
    (tmp_path / path).write_text(text.replace(old, new, 1))
    assert changes(before, Sources()._closure(list(starts))) == ([f"{path} changed"] if differs else [])


def test_kernels_belong_to_the_layers_that_speak_of_them(tmp_path, monkeypatch):
    for name in ("layers", "csrc"):
        (tmp_path / name).mkdir()
    (tmp_path / "csrc" / "fast.cpp").write_text("int a;")
    (tmp_path / "layers" / "kernels.py").write_text("from importlib.resources import files\nSOURCE = files('csrc')\n")
    own = tmp_path / "layers" / "own.py"
    own.write_text("from layers.kernels import SOURCE\n")
    monkeypatch.setattr("harness.sources.PROJECT", tmp_path)
    assert set(Sources()._closure([own])) == {"layers/own.py", "layers/kernels.py", "csrc/fast.cpp"}
    (tmp_path / "layers" / "kernels.py").write_text("'''No word of it.'''\n")
    assert set(Sources()._closure([own])) == {"layers/own.py", "layers/kernels.py"}


def test_a_file_from_elsewhere_is_called_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("from layers.woodbury import Woodbury\n\n\nclass Mine(Woodbury):\n    pass\n")
    files = Sources().of(density("mine.py:Mine"))
    # The class says where it was defined; what it builds upon comes along.
    assert "mine.py" in files and "layers/woodbury.py" in files


def test_changes_in_words():
    before, now = {"a.py": "1", "b.py": "2", "c.py": "3"}, {"b.py": "2", "c.py": "4", "d.py": "5"}
    assert changes(before, now) == ["a.py is gone", "c.py changed", "d.py is new"]
