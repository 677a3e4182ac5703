"""Suite files: accepted forms, and all faults at once with their places."""

import re
from pathlib import Path

import pytest
import torch

from harness.core.errors import SuiteError
from harness.planning.settle import load_suite, settle
from harness.planning.suite import packaged_suites, read_suite

GOOD = """\
suite: tiny
kind: density
title: Tiny
layers:
  conv1x1: {}
  butterfly: {options: {levels: 3}}
training: {learning_rate: 1e-3, steps: 2}
profiles:
  quick:
    seeds: 2
    flow: {levels: 1, steps: 1, width: 8}
    datasets:
      digits: {}
"""

SEQUENCES = "{file: a, kind: sequence, shape: [2, 16]}"
SIX_COLUMNS = "".join(f"\n      d{number}: {{data: digits}}" for number in range(6))


def write(folder, text, name="tiny.yaml"):
    path = folder / name
    path.write_text(text)
    return path


def complaints(path, shapes=False):
    """Return (line, column, message) of every fault."""
    with pytest.raises(SuiteError) as caught:
        load_suite(path, shapes=shapes)
    faults = []
    for line in str(caught.value).splitlines():
        match = re.fullmatch(rf"{re.escape(str(path))}:(\d+):(\d+): (.+)", line)
        assert match, f"no line and column: {line}"
        faults.append((int(match[1]), int(match[2]), match[3]))
    return faults


@pytest.mark.parametrize("name", packaged_suites())
def test_packaged_suites_are_valid_in_every_profile(name):
    assert load_suite(name, shapes=True).suite == name


def test_a_packaged_suite_is_found_by_name_and_by_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").mkdir()  # as in reports/
    for name in ("quickstart", "quickstart.yaml", "suites/quickstart.yaml"):
        assert read_suite(name).suite == "quickstart"
    write(tmp_path, GOOD, "quickstart.yaml")
    assert read_suite("quickstart.yaml").suite == "tiny", "a local file has precedence"


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "words"),
    [
        ("title: Tiny", "titel: Tiny", 3, 1, "unknown key 'titel'; did you mean title"),
        ("layers:", "layer:", 1, 1, "the key 'layers' is missing"),
        ("title: Tiny", "title: 3", 3, 8, "title: expected a string, got the number 3"),
        ("suite: tiny", "suite: ../tiny", 1, 8, "is no name for a folder"),
        ("kind: density", "kind: densty", 2, 7, "'parameters' or 'runtime'; did you mean density?"),
        ("steps: 2", "stepz: 2", 7, 33, "unknown key 'stepz' in training; did you mean steps?"),
        ("steps: 2", "steps: three", 7, 40, "training.steps: expected a whole number, got the string 'three'"),
        ("steps: 2", "steps: 2.0", 7, 40, "expected a whole number, got the number 2.0"),
        ("steps: 2", "steps: 0", 7, 40, "training.steps: the number 0 must be at least 1"),
        ("steps: 2", "learning_rate: 1", 7, 33, "the key 'learning_rate' stands twice, first in line 7"),
        ("learning_rate: 1e-3", "learning_rate: fast", 7, 27, "expected a number, got the string 'fast'"),
        ("seeds: 2", "seeds: 0", 10, 12, "number of seeds is between"),
        ("seeds: 2", "seeds: [1, 1]", 10, 12, "a seed stands twice"),
        ("seeds: 2", "seeds: [1, -1]", 10, 16, "seeds[1]: the number -1 must be at least 0"),
        ("  quick:", "  quik:", 9, 3, "'quik' is not one of 'smoke', 'quick', 'local' or 'paper'; did you"),
        ("  quick:", "  quick: 3\n  smoke:", 9, 10, "profiles.quick: expected a mapping, got the number 3"),
        ("{levels: 3}", "{levels: 12}", 6, 24, "at most 6 levels"),
        ("{levels: 3}", "{levels: three}", 6, 33, "'three'"),
        ("{levels: 3}", "{level: 3}", 6, 32, "did you mean levels"),
        ("  butterfly:", "  buterfly:", 6, 3, "layer 'buterfly' is not registered"),
        ("conv1x1: {}", "mine: {layer: conv}", 5, 17, "layer 'conv' is not registered"),
        ("conv1x1: {}", f"mine: {{layer: {'a' * 300}.py:Mine}}", 5, 17, "there is no such file"),
        (
            "seeds: 2",
            f"seeds: 10000\n    datasets: {SIX_COLUMNS}\n  smoke:",
            9,
            3,
            "12 cells and 120,000 trials; a profile has at most",
        ),
        ("conv1x1: {}", '"a,b": {layer: conv1x1}', 5, 3, "is no label"),
        ("digits: {}", "digts: {}", 13, 7, "data set 'digts' is not registered (did you mean digits?)"),
        ("digits: {}", "digits: {options: {size: 3}}", 13, 32, "'size'"),
        ("digits: {}", "digits: {layers: {butterfy: {}}}", 13, 25, "no row 'butterfy'; did you mean butterfly?"),
        ("digits: {}", "digits: {layers: {butterfly: {options: {levels: three}}}}", 13, 55, "butterfly: option levels"),
        ("digits: {}", "digits: {dequantise: false}", 13, 28, "on a lattice"),
        ("digits: {}", "digits: {permute: per-sed}", 13, 25, "expected per-seed (a permutation for each seed) or a"),
        ("digits: {}", f"a: {{data: npz, preprocessing: logit, options: {SEQUENCES}}}", 13, 37, "npz holds sequences"),
        ("digits: {}", "digits: {shape: [1, 8, 8]}", 13, 16, "unknown key 'shape' in"),
        ("width: 8", "gate: closed", 11, 39, "flow.gate: the string 'closed' is not one of 'published' or 'bounded'"),
        ("levels: 1,", "levels: 4,", 13, 7, "use at most 3 levels"),
        ("    datasets:\n      digits: {}\n", "", 9, 3, "profiles.quick has no datasets"),
        ("seeds: 2", "timing: {processes: 2}", 10, 14, "unknown key 'processes' in"),
    ],
)
def test_each_fault_has_its_place(tmp_path, old, new, line, column, words):
    assert old in GOOD
    faults = complaints(write(tmp_path, GOOD.replace(old, new, 1)), shapes=True)
    assert [fault for fault in faults if fault[:2] == (line, column) and words in fault[2]], faults
    assert len(faults) <= 2


def test_too_many_cells_are_refused_before_they_are_examined(tmp_path):
    rows = "".join(f"  r{number}: {{}}\n" for number in range(5001))
    [fault] = complaints(write(tmp_path, f"{GOOD[: GOOD.index('  conv1x1')]}{rows}{GOOD[GOOD.index('training') :]}"))
    assert fault[2].startswith("profiles.quick: 5,001 cells and 5,001 trials; a profile has at most")


def test_all_faults_of_structure_are_reported_at_once(tmp_path):
    text = GOOD.replace("title: Tiny", "title: 3").replace("steps: 2", "stepz: 2").replace("seeds: 2", "seeds: three")
    assert [place[:2] for place in complaints(write(tmp_path, text))] == [(3, 8), (7, 33), (10, 12)]


def test_all_faults_of_names_are_reported_at_once_and_shapes_after_them(tmp_path):
    """Shapes are checked after all else, and of a suite that runs after the changes of the command line."""
    deep = GOOD.replace("levels: 3", "levels: 12")
    text = deep.replace("conv1x1: {}", "conv1: {}").replace("digits: {}", "digits: {}\n      digts: {}")
    faults = complaints(write(tmp_path, text), shapes=True)
    assert [place[:2] for place in faults] == [(5, 3), (14, 7)]
    load_suite(write(tmp_path, deep))


def test_shapes_are_checked_with_the_settings_of_every_profile_and_data_set(tmp_path):
    """Settings of a profile or a data set may make a row impossible there only."""
    deeper = "digits: {layers: {butterfly: {options: {levels: 9}}}}"
    [(line, column, message)] = complaints(write(tmp_path, GOOD.replace("digits: {}", deeper)), shapes=True)
    assert (line, column) == (13, 46) and "(quick digits)" in message
    text = GOOD.replace("digits: {}", f"plain: {{data: digits}}\n      {deeper}")
    [(line, column, message)] = complaints(write(tmp_path, text), shapes=True)
    assert (line, column) == (14, 46) and "(quick digits)" in message
    suite = load_suite(write(tmp_path, GOOD), shapes=True)
    with pytest.raises(SuiteError, match="at most 6 levels"):
        settle(suite, "quick", "cpu", settings=["layers.butterfly.options.levels=9"]).plan()


def test_a_suite_may_declare_impossible_shapes_as_unsupported(tmp_path):
    text = GOOD.replace("levels: 3", "levels: 12").replace("title: Tiny", "title: Tiny\nunsupported: true")
    assert load_suite(write(tmp_path, text), shapes=True).unsupported


def test_a_layer_beside_the_suite_is_built_on_one_thread_and_changes_the_working_directory_for_no_other(
    tmp_path, monkeypatch
):
    """On busy cores, threads of the small models that a check builds wait for each other for seconds."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "theirs.py").write_text(
        "import os, torch\nfrom layers.conv1x1 import Conv1x1\nos.chdir('/')\n"
        "class Moving(Conv1x1):\n    def __init__(self, shape):\n"
        "        os.chdir('/')\n        super().__init__(shape)\n"
        "class Raising(Conv1x1):\n    def __init__(self, shape):\n"
        "        raise ValueError(f'{torch.get_num_threads()} at work')\n"
    )
    path, text = Path("../tiny.yaml"), GOOD.replace("conv1x1: {}", "mine: {layer: theirs.py:Moving}")
    path.write_text(text)
    assert load_suite(path, shapes=True).layers["mine"].layer == "theirs.py:Moving"
    assert Path.cwd() == tmp_path / "elsewhere"
    path.write_text(text.replace("Moving", "Raising"))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        [(*_, message)] = complaints(path, shapes=True)
        assert "1 at work" in message and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_wrong_sweep_is_refused(tmp_path, case):
    for sweep, words in {
        "{shapes: [[3, 4, 4]]}": "either batch (a number) or batches (a list)",
        "{shapes: [[3, 4, 4]], batch: 1, batches: [1]}": "either batch",
        "{shapes: [[3]], batch: 1}": "too short",
        "{shapes: [], batch: 1}": "too short",
        "{batch: 1}": "the key 'shapes' is missing",
    }.items():
        with case(sweep=sweep):
            head = "suite: t\nkind: runtime\ntitle: T\nlayers: {conv1x1: {}}\n"
            text = f"{head}profiles: {{quick: {{sweeps: {{a: {sweep}}}}}}}\n"
            assert any(words in message for *_, message in complaints(write(tmp_path, text)))


def test_keys_of_another_kind_are_refused(tmp_path):
    text = (
        "suite: t\nkind: runtime\ntitle: T\nlayers: {conv1x1: {flow: {levels: 2}}}\ntraining: {steps: 3}\n"
        "profiles: {quick: {seeds: 3, timing: {batch: 3}, sweeps: {a: {shapes: [[3, 4, 4]], batch: 1}}}}\n"
    )
    faults = complaints(write(tmp_path, text))
    keys = ("flow", "training", "seeds", "batch")
    assert all(f"unknown key {key!r}" in message for key, (*_, message) in zip(keys, faults, strict=True))
    assert faults[0][:2] == (4, 20)


def test_a_size_that_no_flow_has_is_one_fault_before_anything_is_built(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.planning.suite_checks.suite_problems", lambda *_: pytest.fail("built"))
    for old in ("levels: 1", "steps: 1", "width: 8"):
        key = old.partition(":")[0]
        [(line, _, message)] = complaints(write(tmp_path, GOOD.replace(old, f"{key}: 2000000000")))
        assert line == 11 and f"flow.{key}: the number 2000000000 must be at most" in message
