"""The source that a result depends on: all files that can change it, and no others."""

import hashlib
import itertools
import shutil
from importlib import metadata
from pathlib import Path

import pytest

from flows.perceptron import Perceptron
from harness.core.provenance.sources import ALL, Sources, _starts, changes, kernel_files
from harness.core.settings import DataRef, FlowSettings, LayerRef, TrainingSettings
from harness.core.third_party import source_digest
from harness.kinds.density.trial import DensityTrial
from harness.kinds.parameters.trial import ParametersTrial
from harness.kinds.runtime.trial import RuntimeTrial
from harness.pipeline.models import build_flow

PROJECT = Path(__file__).resolve().parents[4]


def layer(name="butterfly"):
    return LayerRef(row="one", layer=name)


def density(name="butterfly", data="digits", mixer="plu", device="cpu"):
    flow = FlowSettings(mixer=mixer)
    settings = {"layer": layer(name), "flow": flow, "training": TrainingSettings(), "seed": 0}
    return DensityTrial(suite="s", profile="smoke", device=device, data=DataRef(label="d", name=data), **settings)


def test_a_density_trial_depends_on_layer_backbone_training_and_dataset():
    files = set(Sources().of(density()))
    expected = {
        "layers/base.py",
        "layers/butterfly.py",
        "layers/butterflies/pairs.py",
        "layers/conv1x1.py",  # the mixer
        "flows/backbones/glow.py",
        "flows/couplings.py",
        "harness/training/training.py",
        "harness/training/updates.py",
        "harness/evaluation/evaluation.py",
        "harness/pipeline/pipeline.py",
        "harness/audit/audit.py",
        "harness/core/flags.py",
        "harness/datasets/digits.py",
    }
    assert expected <= files
    foreign = {"layers/emerging.py", "layers/__init__.py", "harness/datasets/waveforms.py", "harness/cli/run.py"}
    foreign |= {"harness/kinds/runtime/run.py", "harness/training/checkpoints.py", "harness/core/records.py"}
    assert not foreign & files
    assert "layers/conv1x1.py" not in Sources().of(density("woodbury", mixer="none"))
    assert "harness/datasets/_signals/pulse_generator.py" in Sources().of(density(data="waveforms"))


def test_a_layer_of_a_library_depends_on_its_file_and_on_what_applies_it():
    files = set(Sources().of(density("zuko.transforms:RotationTransform")))
    assert {"transforms.py", "layers/adapters/distributions.py", "layers/adapters/base.py"} <= files
    assert "layers/adapters/nflows.py" not in files


def test_each_kind_of_trial_depends_on_its_own_source():
    timed = RuntimeTrial(
        suite="s", profile="smoke", sweep="a", shape=(2, 4), batch=1, layers=(layer(), layer("emerging")), operations=()
    )
    files = set(Sources().of(timed))
    assert {"layers/emerging.py", "layers/butterfly.py", "harness/timing/timing.py"} <= files
    assert not {"harness/training/training.py", "flows/perceptron.py", "csrc/coupling/perceptron.cpp"} & files
    assert {"csrc/emerging/cpu/operators.cpp", "csrc/butterfly/cpu/kernels.cpp"} <= files
    counted = ParametersTrial(suite="s", profile="smoke", label="a", shape=(2, 4), layer=layer(), flow=FlowSettings())
    files = set(Sources().of(counted))
    assert "flows/perceptron.py" in files and "harness/timing/timing.py" not in files
    assert not any(file.startswith("csrc/") for file in files), "counting runs no kernel"


EDITS = {
    "the layer": ("layers/woodbury.py", "torch.addmm(", "torch.addbmm(", True),
    "a comment": ("layers/woodbury.py", "import torch", "import torch  # of course", False),
    "a docstring": ("layers/woodbury.py", '"""', '"""Well. ', False),
    "the layout": ("layers/woodbury.py", "import torch", "import torch\n\n", False),
    "another layer": ("layers/emerging.py", "import torch", "import torch\n\nODD = 1", False),
    "the backbone": ("flows/protocol.py", "import torch", "import torch\n\nODD = 1", True),
    "the schedule": ("harness/training/updates.py", "betas=(0.9,", "betas=(0.8,", True),
    "records": ("harness/core/records.py", "SCHEMA = 2", "SCHEMA = 3", False),
}


def test_a_digest_changes_with_its_source(tmp_path, monkeypatch):
    """In a copy of the project."""
    for package in ("layers", "flows", "harness"):
        shutil.copytree(PROJECT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("harness.core.provenance.sources.PROJECT", tmp_path)
    starts = [tmp_path / "layers" / "woodbury.py", tmp_path / "harness" / "kinds" / "density" / "run.py"]
    before = Sources()._closure(list(starts), "cpu")
    for edit, (path, old, new, differs) in EDITS.items():
        text = (tmp_path / path).read_text()
        assert old in text, edit
        (tmp_path / path).write_text(text.replace(old, new, 1))
        now = Sources()._closure(list(starts), "cpu")
        assert changes(before, now) == ([f"{path} changed"] if differs else []), edit
        (tmp_path / path).write_text(text)


def test_a_trial_depends_on_the_kernels_that_its_files_call(tmp_path, monkeypatch):
    for name in ("layers", "csrc"):
        (tmp_path / name).mkdir()
    for name in ("fast", "slow"):
        (tmp_path / "csrc" / f"{name}.cpp").write_text(f'm.def("{name}() -> ()");')
    (tmp_path / "layers" / "fast.py").write_text("import torch\ntorch.ops.invertbench.fast()\n")
    layer = tmp_path / "layers" / "own.py"
    layer.write_text("import layers.fast\n")
    monkeypatch.setattr("harness.core.provenance.sources.PROJECT", tmp_path)
    assert set(Sources()._closure([layer], "cpu")) == {"layers/own.py", "layers/fast.py", "csrc/fast.cpp"}
    assert set(Sources()._closure([layer], None)) == {"layers/own.py", "layers/fast.py"}, "no operator is run"
    layer.write_text("import torch\ngetattr(torch.ops.invertbench, chosen)()\n")
    assert set(Sources()._closure([layer], "cpu")) == {"layers/own.py", "csrc/fast.cpp", "csrc/slow.cpp"}


LAYERS, DATA, DEVICES = ("butterfly", "conv1x1", "emerging"), ("digits", "waveforms"), ("cpu", "cuda")


def cases(layers=LAYERS, data=DATA, devices=DEVICES):
    """Return the trials of these layers, data and devices."""
    return set(itertools.product(layers, data, devices))


KERNEL_EDITS = {  # the edited file, and the trials that it makes stale
    "csrc/butterfly/cuda/tile.h": cases(["butterfly"], devices=["cuda"]),
    "csrc/cuda/block.h": cases(["butterfly", "emerging"], devices=["cuda"]),  # of all CUDA kernels
    "csrc/butterfly/cpu/entry_lanes/lanes.h": cases(["butterfly"], devices=["cpu"]),
    "csrc/emerging/operators.cpp": cases(["emerging"]),  # of both devices
    "csrc/convolution/correlate_planes.h": cases(["emerging"], devices=["cpu"]),  # a gradient
    "csrc/coupling/perceptron_tile.h": cases(data=["waveforms"], devices=["cpu"]),  # the couplings of sequences
    "csrc/affine/scales_rows.h": cases(devices=["cpu"]),  # the affine maps of every flow
    "flows/perceptron.py": cases(data=["waveforms"]),  # calls the kernel of the couplings of sequences
}


def test_a_changed_kernel_makes_dependent_trials_stale(tmp_path, monkeypatch):
    """In a copy of the project; only where a trial starts is looked up in the modules that this process imported."""
    for package in ("csrc", "flows", "layers", "harness"):
        shutil.copytree(PROJECT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    starts = {case: _starts(density(case[0], case[1])) for case in cases()}
    monkeypatch.setattr("harness.core.provenance.sources.PROJECT", tmp_path)

    def copied_starts(trial):
        files = starts[trial.layer.layer, trial.data.name, trial.device]
        return [tmp_path / file.relative_to(PROJECT) for file in files]

    monkeypatch.setattr("harness.core.provenance.sources._starts", copied_starts)

    def digests():
        sources = Sources()
        return {case: sources.of(density(case[0], case[1], device=case[2])) for case in cases()}

    before = digests()
    for path, stale in KERNEL_EDITS.items():
        text = (tmp_path / path).read_text()
        (tmp_path / path).write_text(f"{text}\nint ODD = 1;\n" if path.endswith(("h", "cpp")) else f"{text}\nODD = 1\n")
        now = digests()
        assert {case for case in cases() if changes(before[case], now[case])} == stale, path
        (tmp_path / path).write_text(text)


def test_every_kernel_source_belongs_to_an_operator():
    """Otherwise a change of the source would make no record stale."""
    folder = PROJECT / "csrc"
    reached = {file for device in ("cpu", "cuda") for file in kernel_files(folder, {ALL}, device)}
    assert reached == {file for file in folder.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")}


@pytest.mark.parametrize("coupling", ["auto", "image", "glow", "sequence", "attention"])
@pytest.mark.parametrize("data", ["digits", "waveforms"])
def test_only_flows_with_a_perceptron_depend_on_its_kernel(data, coupling):
    trial = density("conv1x1", data)
    trial = trial.model_copy(update={"flow": trial.flow.model_copy(update={"coupling": coupling})})
    flow = build_flow((4, 4, 4) if data == "digits" else (4, 16), trial.layer, trial.flow, 0)
    built = any(isinstance(module, Perceptron) for module in flow.modules())
    assert built == ("flows/perceptron.py" in Sources().of(trial))


NETWORKS = ("perceptron", "backbones/glow", "backbones/autoregressive")


@pytest.mark.parametrize("baseline", [False, True])
def test_flows_depend_on_their_own_backbone(baseline):
    """A baseline has none, whatever the suite's."""
    trial = density("conv1x1", "waveforms")
    layer = trial.layer.model_copy(update={"layer": "maf", "baseline": True}) if baseline else trial.layer
    needed = {}
    for backbone in ("glow", "autoregressive"):
        flow = trial.flow.model_copy(update={"backbone": backbone, "steps": 2})
        files = Sources().of(trial.model_copy(update={"flow": flow, "layer": layer}))
        needed[backbone] = [name for name in NETWORKS if f"flows/{name}.py" in files]
    own = {name: [] if baseline else ["perceptron", f"backbones/{name}"] for name in needed}
    assert needed == own


def test_a_file_outside_the_project_is_named_by_its_file_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("from layers.woodbury import Woodbury\n\n\nclass Mine(Woodbury):\n    pass\n")
    files = Sources().of(density("mine.py:Mine"))
    # The digest includes the file of the class and the files that it imports.
    assert "mine.py" in files and "layers/woodbury.py" in files


def test_changed_sources_are_described():
    before, now = {"a.py": "1", "b.py": "2", "c.py": "3"}, {"b.py": "2", "c.py": "4", "d.py": "5"}
    assert changes(before, now) == ["a.py is gone", "c.py changed", "d.py is new"]


FILES = {
    "mine.py": "from layers.conv1x1 import Conv1x1\nimport direct\n\n\nclass Mine(Conv1x1):\n    pass\n",
    "direct.py": "import importlib as i\n\n\ndef f():\n    from parts import deep\n    i.import_module('named')\n",
    "parts/__init__.py": "",
    "parts/deep.py": "from . import deeper\nfrom .. import above\n",
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
        (followed_files / "parts" / "deep.py").write_text("from . import deeper\nimport above\n")
    before = Sources().of(density(spec))
    names = {name for name in before if not name.startswith(("layers/", "flows/", "harness/", "csrc/"))}
    assert names == set(FILES) - {"other.py"} | {"zuko"}
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


def test_files_of_one_name_in_two_folders_both_count(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text(FILES["mine.py"])
        (tmp_path / name / "direct.py").write_text(f"PLACE = {name!r}\n")
    pair = tuple(LayerRef(row=name, layer=f"{name}/mine.py:Mine") for name in ("one", "two"))
    trial = RuntimeTrial(suite="s", profile="smoke", sweep="a", shape=(2, 4), batch=1, layers=pair, operations=())
    before = Sources().of(trial)
    for name in ("one", "two"):
        with (tmp_path / name / "direct.py").open("a") as file:
            file.write("ODD = 1\n")
        assert changes(before, before := Sources().of(trial)) == ["direct.py changed"]
