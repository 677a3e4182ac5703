"""The command line: one message and the right exit code for whatever is wrong, and no work done twice."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from harness.cli import main
from harness.datasets import DATASETS
from harness.errors import UserError
from harness.records import blank_record, read_record, write_record

PROJECT = Path(__file__).resolve().parents[2]

SUITE = """\
suite: tiny
kind: density
title: A tiny suite
layers:
  conv1x1: {}
  butterfly: {options: {levels: 3}}
training: {learning_rate: 1e-3, steps: 2, batch_size: 8, evaluate_every: 1}
profiles:
  quick:
    flow: {levels: 1, steps: 1, width: 4}
    datasets:
      digits: {}
"""


def command(*arguments, folder):
    """Run the program as a user does."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT)}
    return subprocess.run(
        [sys.executable, "-m", "harness", *map(str, arguments)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def suite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.yaml"
    path.write_text(SUITE)
    return path


@pytest.fixture
def stand_in(monkeypatch):
    """Trials that are done at once; the list of those that were asked for."""
    asked = []

    def run_trials(trials, root, out, jobs, reporter):
        for trial in trials:
            asked.append(trial)
            record = blank_record(trial, "ok", None)
            record.rows = [{"bits_per_dim": 2.0, "parameters": 3}]
            write_record(out / "records", record)

    monkeypatch.setattr("harness.executor.run_trials", run_trials)
    monkeypatch.setattr("harness.executor.start_server", lambda datasets, kernels: None)
    return asked


BAD_TEXTS = {
    "a typo in a key": (SUITE.replace("steps: 2", "stepz: 2"), r":7:33: unknown key 'stepz'.*did you mean steps"),
    "a string for a number": (SUITE.replace("steps: 2", "steps: two"), r":7:40: .*a whole number.*'two'"),
    "a duplicate key": (SUITE.replace("steps: 2", "steps: 2, steps: 3"), r":7:43: .*'steps' stands twice"),
    "a level too deep": (SUITE.replace("levels: 3", "levels: 12"), r":6:24: .*at most 6 levels; asked for 12"),
    "an unknown layer": (SUITE.replace("butterfly", "buterfly"), r":6:3: .*'buterfly' is not registered"),
    "a flow too deep": (SUITE.replace("levels: 1", "levels: 5"), r":12:7: .*\(1, 8, 8\) with levels = 5"),
    "an unknown data set": (SUITE.replace("digits", "digitz"), r":12:7: .*'digitz'; did you mean digits"),
    "an empty file": ("", r":1:1: the file is empty"),
    "a list": ("- a\n- b\n", r":1:1: the top level is not a mapping"),
    "binary rubbish": (b"\x7fELF\x02\x01\x01\x00\xff\xfe", r":1:9: byte 0xff is not UTF-8"),
    "zeros": (b"\x00" * 64, r":1:1: the character '\\x00' cannot stand"),
    "a tag that would run code": (
        SUITE.replace("steps: 2", "steps: !!python/object/apply:os.system [touch ran]"),
        r":7:40: the tag !!python/object/apply:os.system is not allowed",
    ),
    "raw lattice values": (SUITE.replace("digits: {}", "digits: {dequantise: false}"), r":12:28: .*on a lattice"),
}


@pytest.mark.parametrize("verb", ["validate", "run", "plan"])
@pytest.mark.parametrize("fault", BAD_TEXTS)
def test_a_bad_suite_is_one_message_with_its_place(tmp_path, monkeypatch, capsys, fault, verb):
    monkeypatch.chdir(tmp_path)
    content, words = BAD_TEXTS[fault]
    path = tmp_path / "bad.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main([verb, str(path)]) == 2
    out, error = capsys.readouterr()
    assert out == "" and len(error.splitlines()) == 1
    assert error.startswith(f"{path}:") and re.search(words, error), error
    assert [entry.name for entry in tmp_path.iterdir()] == ["bad.yaml"]  # a refused command writes nothing


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (".", "a directory"),
        ("absent.yaml", "no such file"),
        ("quickstrat", "did you mean quickstart?"),
        ("a" * 5000, "cannot be read|no such file"),
    ],
)
def test_a_path_that_is_no_suite(suite, capsys, name, words):
    assert main(["run", name]) == 2
    assert re.search(words, capsys.readouterr().err)


def test_no_traceback_from_the_program_itself(suite):
    suite.write_text(SUITE.replace("steps: 2", "steps: !!python/object/apply:os.system [touch ran]"))
    done = command("run", suite, folder=suite.parent)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"{suite}:7:40: the tag") and "Traceback" not in done.stderr
    assert not (suite.parent / "ran").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["train"],
        ["run"],
        ["run", "quickstart", "--profile", "huge"],
        ["run", "quickstart", "--seeds", "0"],
        ["run", "quickstart", "--jobs", "many"],
        ["run", "quickstart", "--executor", "slurm"],
        ["run", "quickstart", "--set", "training.stepz=3"],
        ["run", "quickstart", "--only", "layer=absent"],
        ["run", "quickstart", "--layer", "absent.py:Mine"],
        ["run", "quickstart", "--profile", "paper"],
        ["status", "absent"],
        ["report", "."],
        ["list", "planets"],
        ["check-layer", "absent"],
        ["check-layer", "conv1x1", "--set", "parameterisation=svd"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_ends_with_2(suite, capsys, arguments):
    assert main(arguments) == 2
    out, error = capsys.readouterr()
    assert error and "Traceback" not in error and out == ""
    assert [entry.name for entry in suite.parent.iterdir()] == ["tiny.yaml"]


def test_help_is_no_fault(capsys):
    assert main(["--help"]) == 0 and "check-layer" in capsys.readouterr().out


def test_missing_data_is_told_before_anything_runs(suite, capsys, stand_in):
    suite.write_text(
        SUITE.replace("digits: {}", "digits: {}\n      mnist: {}\n      shuffled: {data: mnist, permute: 1}")
    )
    arguments = ["--set", "layers.butterfly.options.levels=1", "--data", str(suite.parent), "--offline"]
    assert main(["run", str(suite), *arguments]) == 3
    error = capsys.readouterr().err
    assert error.count("mnist:") == 1 and "train-images-idx3-ubyte.gz is not there" in error
    assert stand_in == [] and not (suite.parent / "reports").exists()


def test_the_trials_server_is_started_before_anything_is_planned(suite, monkeypatch):
    order = []
    monkeypatch.setattr("harness.executor.start_server", lambda datasets, kernels: order.append(list(datasets)))

    def plan(args):
        order.append("plan")
        raise UserError("far enough")

    monkeypatch.setattr("harness.commands._plan", plan)
    suite.write_text(SUITE.replace("digits: {}", "digits: {}\n      mixed: {data: mnist, permute: 1}"))
    assert main(["run", str(suite)]) == 2
    assert order == [["digits", "mnist"], "plan"]
    suite.write_text("- no suite\n")
    assert main(["run", str(suite)]) == 2
    assert order[2:] == ["plan"]  # which says what is wrong


def test_a_data_root_that_is_not_there(suite, capsys, monkeypatch):
    assert main(["run", str(suite), "--data", "absent"]) == 3
    assert "--data absent: no such folder" in capsys.readouterr().err
    monkeypatch.setenv("INVERTBENCH_DATA", "gone")
    assert main(["run", str(suite)]) == 3
    assert "$INVERTBENCH_DATA gone: no such folder" in capsys.readouterr().err


def test_an_out_folder_that_cannot_be_written(suite, capsys):
    assert main(["run", str(suite), "--out", str(suite)]) == 2
    assert "choose another --out" in capsys.readouterr().err


def test_a_run_from_start_to_report(suite, capsys, monkeypatch):
    """The real thing, as a process; then everything that builds on its records."""
    done = command("run", suite, "--jobs", "1", folder=suite.parent)
    assert done.returncode == 0, done.stderr
    folder = suite.parent / "reports" / "tiny"
    table = (folder / "table.md").read_text()
    assert table in done.stdout and "butterfly" in table
    assert len(list((folder / "records").glob("*.json"))) == 2

    def refuse(*_):
        raise AssertionError("a finished suite ran again")

    monkeypatch.setattr("harness.executor.run_trials", refuse)
    before = (folder / "results.csv").read_bytes()
    assert main(["run", "tiny.yaml"]) == 0
    assert "nothing to run" in capsys.readouterr().out
    assert (folder / "results.csv").read_bytes() == before
    (folder / "table.md").unlink()
    assert main(["report", "reports/tiny"]) == 0 and (folder / "table.md").read_text() == table
    assert main(["status", "reports"]) == 0 and "2 trials: 2 ok" in capsys.readouterr().out


def test_a_run_does_what_is_missing_or_failed(suite, capsys, stand_in):
    assert main(["run", "tiny.yaml", "--only", "layer=conv1x1"]) == 0
    assert [trial.layer.row for trial in stand_in] == ["conv1x1"]
    assert main(["run", "tiny.yaml"]) == 0
    assert [trial.layer.row for trial in stand_in] == ["conv1x1", "butterfly"]
    [path] = Path("reports/tiny/records").glob("*butterfly*")
    record = read_record(path)
    record.status, record.reason = "diverged", "NaN at step 2"
    write_record(path.parent, record)
    capsys.readouterr()
    assert main(["status", "reports/tiny"]) == 1
    assert "diverged: NaN at step 2" in capsys.readouterr().out
    assert main(["report", "reports/tiny"]) == 1
    assert main(["run", "tiny.yaml"]) == 0 and len(stand_in) == 3
    path.write_text("{")
    assert main(["plan", "tiny.yaml"]) == 0 and "damaged" in capsys.readouterr().out
    assert main(["run", "tiny.yaml"]) == 0 and len(stand_in) == 4


def test_a_changed_setting_runs_what_it_changes(suite, stand_in):
    assert main(["run", "tiny.yaml"]) == 0
    assert main(["run", "tiny.yaml", "--set", "layers.butterfly.options.levels=2"]) == 0
    assert [trial.layer.row for trial in stand_in] == ["conv1x1", "butterfly", "butterfly"]


def test_trials_that_fail_end_with_1(suite, capsys, monkeypatch):
    def run_trials(trials, root, out, jobs, reporter):
        for trial in trials:
            write_record(out / "records", blank_record(trial, "oom", "no memory left"))

    monkeypatch.setattr("harness.executor.run_trials", run_trials)
    assert main(["run", "tiny.yaml"]) == 1
    assert "2 oom" in capsys.readouterr().out


@pytest.mark.parametrize(("declared", "code"), [("", 1), ("unsupported: true\n", 0)])
def test_unsupported_is_ok_where_the_suite_says_so(suite, monkeypatch, declared, code):
    def run_trials(trials, root, out, jobs, reporter):
        for trial in trials:
            write_record(out / "records", blank_record(trial, "unsupported", "odd"))

    suite.write_text(declared + SUITE)
    monkeypatch.setattr("harness.executor.run_trials", run_trials)
    assert main(["run", "tiny.yaml"]) == code


def test_an_interrupt_ends_with_130(suite, capsys, monkeypatch):
    def run_trials(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.executor.run_trials", run_trials)
    assert main(["run", "tiny.yaml"]) == 130
    assert capsys.readouterr().err.startswith("interrupted")


def test_validate_counts_the_trials(suite, capsys):
    assert main(["validate", "tiny.yaml"]) == 0
    assert capsys.readouterr().out == "ok: tiny.yaml (quick 2 trials)\n"
    assert main(["validate", "tiny.yaml", "--profile", "quick"]) == 0
    assert main(["validate", "tiny.yaml", "--profile", "paper"]) == 2


def test_plan_prints_every_trial(suite, capsys):
    assert main(["plan", "tiny.yaml", "--seeds", "2"]) == 0
    out = capsys.readouterr().out
    assert out.count("to run") == 5 and "4 trials: 4 to run" in out
    assert not Path("reports").exists()


@pytest.mark.parametrize(
    ("what", "words"), [("layers", "full_depth_at"), ("datasets", "scikit-learn"), ("suites", "quickstart")]
)
def test_lists(capsys, what, words):
    assert main(["list", what]) == 0
    assert words in capsys.readouterr().out


def test_every_data_set_has_its_page(capsys):
    assert main(["list", "datasets"]) == 0
    pages = capsys.readouterr().out.strip().split("\n\n")
    assert [page.partition(":")[0] for page in pages] == list(DATASETS)
    for page, dataset in zip(pages, DATASETS.values(), strict=True):
        text = " ".join(page.split())
        for fact in (dataset.info.what, dataset.info.size, dataset.info.licence, dataset.info.source):
            assert " ".join(fact.split()) in text
        assert all(f"{option}" in text for option in dataset.options_model.model_fields)
        assert max(map(len, page.splitlines())) <= 118


def test_lists_without_torch(tmp_path):
    """Importing torch takes seconds; two of the lists have no need of it."""
    code = "import sys; from harness.cli import main; main(['list', sys.argv[1]]); sys.exit('torch' in sys.modules)"
    for what in ("suites", "datasets"):
        done = subprocess.run(
            [sys.executable, "-c", code, what], capture_output=True, text=True, cwd=PROJECT, check=False
        )
        assert done.returncode == 0, done.stderr


def test_check_layer_exit_codes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("harness.checking.check_layer.SHAPES", ((2, 3),))  # the checks have tests of their own
    monkeypatch.setattr("harness.checking.check_layer.DTYPES", (torch.float64,))
    assert main(["check-layer", "conv1x1", "--set", "parameterisation=dense"]) == 0
    Path("mine.py").write_text(
        "from layers.conv1x1 import Conv1x1\n\n\n"
        "class Mine(Conv1x1):\n"
        "    def forward(self, x):\n"
        "        y, log_det = super().forward(x)\n"
        "        return y, log_det / self.positions\n"
    )
    capsys.readouterr()
    assert main(["check-layer", "mine.py:Mine"]) == 1
    assert "log-det" in capsys.readouterr().out
