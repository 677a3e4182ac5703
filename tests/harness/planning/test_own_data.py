"""A suite that includes another, and files that the command line adds to a suite as data sets."""

import json

import numpy as np
import pytest
import yaml

import harness
from harness.core.errors import SuiteError, UserError
from harness.planning.settle import load_suite, settle
from harness.planning.suite import read_suite

BASE = """\
suite: base
kind: density
layers: {conv1x1: {options: {parameterisation: plu}}, scale: {}}
flow: {levels: 1, steps: 1, width: 8}
timeout: 60
profiles:
  smoke: {seeds: 1, training: {steps: 2}, datasets: {digits: {}, patches: {}}}
  quick: {seeds: 3, datasets: {digits: {}}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text(BASE)
    values = np.random.default_rng(0).normal(size=(300, 4)) @ np.triu(np.ones((4, 4)))
    np.savetxt("my.csv", values, delimiter=",", header="a,b,c,d", comments="")
    np.savez("windows.npz", x=values.reshape(75, 1, 16).astype(np.float32))
    return tmp_path


def settled(source, profile="smoke", **changes):
    plan, _ = settle(read_suite(source), profile, **changes).plan()
    return plan


def test_an_included_suite_is_changed_key_by_key_and_null_removes_entries(folder):
    changes = {
        "suite": "mine",
        "include": "base.yaml",
        "layers": {"conv1x1": {"options": {"parameterisation": "qr"}}, "scale": None, "butterfly": {}},
        "flow": {"width": 4},
        "timeout": None,
        "profiles": {"quick": None, "smoke": {"datasets": {"patches": None}}},
    }
    (folder / "mine.yaml").write_text(yaml.safe_dump(changes, sort_keys=False))
    suite = load_suite(folder / "mine.yaml", shapes=True)
    plan = settled(folder / "mine.yaml")
    assert (suite.suite, suite.timeout, list(suite.profiles)) == ("mine", None, ["smoke"])
    assert (plan.rows, plan.columns, plan.seeds) == (("conv1x1", "butterfly"), ("digits",), (0,))
    first = plan.trials[0]
    assert dict(first.layer.options) == {"parameterisation": "qr"}
    assert (first.flow.width, first.flow.steps, first.training.steps) == (4, 1, 2)


def test_including_and_changing_nothing_gives_the_trials_of_the_suite(folder):
    (folder / "same.yaml").write_text("suite: which_layer\ninclude: which_layer\nkind: density\n")
    assert settled(folder / "same.yaml").trials == settled("which_layer").trials


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("suite: m\ninclude: which_lager\n", "2:10", "neither a packaged suite nor a file .* did you mean which_layer"),
        ("include: base.yaml\n", "1:1", "key 'suite' is missing"),
        ("suite: m\ninclude: base.yaml\nlayers: {scale: {option: 1}}\n", "3:18", "unknown key 'option'"),
        ("suite: m\ninclude: again.yaml\n", "2:10", "includes another suite itself"),
        ("suite: m\ninclude: ../base.yaml\n", "2:10", "neither a packaged suite nor a file in the folder"),
        ("suite: m\ninclude: [base.yaml]\n", "2:10", "include"),
    ],
)
def test_faults_of_a_suite_that_includes_another_have_their_place(folder, text, place, words):
    (folder / "again.yaml").write_text("suite: again\ninclude: base.yaml\nkind: density\n")
    (folder / "m.yaml").write_text(text + "kind: density\n")
    with pytest.raises(SuiteError, match=rf"m\.yaml:{place}: .*{words}"):
        load_suite(folder / "m.yaml")


def test_files_become_data_sets_with_the_options_that_they_propose_and_those_given(folder):
    suite = str(folder / "base.yaml")
    plan = settled(
        suite,
        datasets=["mine=my.csv:columns=[a, c],noise=0.01", "w=windows.npz"],
        settings=["datasets.mine.flow.width=4", "datasets.mine.permute=3"],
        only=["layer=scale"],
    )
    assert plan.columns == ("digits", "patches", "mine", "w")
    of = {trial.data.label: trial for trial in plan.trials}
    assert (of["mine"].data.name, of["w"].data.name) == ("csv", "npz")
    options = dict(of["mine"].data.options)
    assert (options["file"], options["columns"], options["noise"]) == ("./my.csv", ("a", "c"), 0.01)
    assert (of["mine"].flow.width, of["mine"].data.permute, of["w"].flow.width) == (4, 3, 8)
    assert dict(of["w"].data.options)["file"] == "./windows.npz"


@pytest.mark.parametrize("suite", ["base.yaml", "which_layer"])
def test_a_file_of_another_folder_is_added_to_a_suite_in_a_file_and_to_a_packaged_one(folder, suite):
    (folder / "elsewhere").mkdir()
    (folder / "my.csv").rename(folder / "elsewhere/my.csv")
    outlook = harness.plan(suite, profile="smoke", datasets="mine=elsewhere/my.csv", only={"dataset": "mine"})
    assert outlook.plan.columns == ("mine",) and not [line for line in outlook.remarks if "would stop" in line]
    assert "--dataset mine=elsewhere/my.csv" in outlook.plan.command
    title, question = outlook.plan.titled
    assert title.endswith(" (only dataset=mine)")
    assert question.endswith("This run has a part of the suite: only dataset=mine.")
    absolute = harness.plan(suite, profile="smoke", datasets=f"mine={folder}/elsewhere/my.csv")
    assert "--dataset mine=my.csv" in absolute.plan.command and str(folder) not in json.dumps(absolute.plan.command)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mine=none.csv", "none.csv: there is no such file or folder"),
        ("mine=base.yaml", "no data set takes it; give a table"),
        ("my.csv", "not of the form LABEL=FILE"),
        ("=my.csv", "not of the form LABEL=FILE"),
        ("digits=my.csv", "there is a data set 'digits'"),
        ("mine=my.csv:noise", "an option noise: not of the form"),
        ("mine=my.csv:nose=1", "csv: no option 'nose'; did you mean noise"),
        ("mine=my.csv", r"cannot be halved; use levels = 1 \(--set datasets\.mine\.flow\.levels=...\)"),
    ],
)
def test_a_file_that_cannot_be_added_is_one_message_with_its_option(folder, text, words):
    with pytest.raises(UserError, match=rf"^--dataset {text}: .*{words}"):
        settled(str(folder / "base.yaml"), datasets=[text], settings=["flow.levels=2"])


def test_suites_without_data_sets_take_no_file(folder):
    with pytest.raises(UserError, match=r"--dataset a=my\.csv: a suite of the kind runtime has no data sets"):
        settled("runtime", datasets=["a=my.csv"])
