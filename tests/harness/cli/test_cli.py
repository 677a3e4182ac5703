"""The command line: one message and the right exit code for each error, and no trial runs twice."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli.parser import COMMANDS, main
from harness.core.errors import DataMissing, UserError
from harness.core.records import blank_record, read_record, write_record
from harness.datasets import DATASETS
from harness.datasets.digits import Digits
from harness.execution.folder import claimed, make_folder
from harness.execution.progress import FailedFast
from harness.planning.plan import Plan

PROJECT = Path(__file__).resolve().parents[3]

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


@pytest.fixture
def suite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.yaml"
    path.write_text(SUITE)
    return path


BAD_TEXTS = {
    "a typo in a key": (SUITE.replace("steps: 2", "stepz: 2"), r":7:33: unknown key 'stepz'.*did you mean steps"),
    "an empty file": ("", r":1:1: the file is empty"),
    "a list": ("- a\n- b\n", r":1:1: the top level is not a mapping"),
    "binary rubbish": (b"\x7fELF\x02\x01\x01\x00\xff\xfe", r": invalid start byte at position 8"),
    "a tag that would run code": (
        SUITE.replace("steps: 2", "steps: !!python/object/apply:os.system [touch ran]"),
        r":7:40: the tag !!python/object/apply:os.system is not allowed",
    ),
    "raw lattice values": (SUITE.replace("digits: {}", "digits: {dequantise: false}"), r":12:28: .*on a lattice"),
}


@pytest.mark.parametrize("fault", BAD_TEXTS)
def test_a_bad_suite_is_one_message_with_its_place(tmp_path, monkeypatch, capsys, fault):
    monkeypatch.chdir(tmp_path)
    content, words = BAD_TEXTS[fault]
    path = tmp_path / "bad.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for verb in ("validate", "run", "plan"):
        assert main([verb, str(path)]) == 2
        out, error = capsys.readouterr()
        assert out == "" and len(error.splitlines()) == 1
        assert error.startswith(f"{path}:") and re.search(words, error), error
    assert [entry.name for entry in tmp_path.iterdir()] == ["bad.yaml"]  # a refused command writes nothing


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (".", "it is a folder"),
        ("absent.yaml", "no such file"),
        ("quickstrat", "did you mean quickstart?"),
        ("a" * 5000, "cannot be read|no such file"),
    ],
)
def test_a_path_that_is_not_a_suite_ends_with_2(suite, capsys, name, words):
    assert main(["run", name]) == 2
    assert re.search(words, capsys.readouterr().err)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["train"],
        ["run"],
        ["run", "quickstart", "--profile", "huge"],
        ["run", "quickstart", "--memory", "4"],
        ["run", "quickstart", "--memory", "9000000TiB"],
        ["run", "quickstart", "--set", "timeout=never"],
        ["run", "quickstart", "--executor", "pbs"],
        ["run", "quickstart", "--cluster", "time=2h"],
        ["run", "quickstart", "--executor", "slurm", "--cluster", "time=soon"],
        ["run", "quickstart", "--executor", "slurm", "--cluster", "options.wrap=ls"],
        ["run", "quickstart", "--layer", "absent.py:Mine"],
        ["run", "quickstart", "--profile", "paper"],
        ["status", "absent"],
        ["report", "."],
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


def test_help_names_every_command(capsys):
    files = {path.stem.replace("_", "-") for path in (PROJECT / "harness/cli").glob("*.py")}
    assert set(COMMANDS) == files - {"--init--", "parser"}, "a file of this folder is a command"
    assert main(["--help"]) == 0
    assert re.findall(r"^    ([a-z-]+)\b", capsys.readouterr().out, re.MULTILINE) == list(COMMANDS)


def test_a_profile_leaves_out_the_data_sets_whose_files_are_missing(suite, capsys, stand_in):
    """A run is of what is there, says what is not, and stops where that is all, is named, or is damaged."""
    columns = "digits: {}\n      mnist: {}\n      shuffled: {data: mnist, permute: 1}"
    content = SUITE.replace("  quick:", "  quick:\n    leave_out_missing: true\n    remark: Small.")
    suite.write_text(content.replace("digits: {}", columns))
    arguments = ["--data", str(suite.parent), "--offline"]
    assert main(["run", str(suite), *arguments]) == 0
    out = capsys.readouterr().out
    assert {trial.column for trial in stand_in} == {"digits"} and len(stand_in) == 2
    for label in ("mnist", "shuffled"):
        assert out.count(f"left out: {label}, as its files are missing: mnist: train-images-idx3-ubyte.gz") == 1
    folder = suite.parent / "reports" / "tiny"
    assert Plan.load(folder).columns == ("digits",)
    assert "- Small. Left out, as their files are missing: mnist, shuffled" in (folder / "table.md").read_text()
    assert main(["plan", str(suite), *arguments[:2]]) == 0
    out = capsys.readouterr().out
    assert "2 trials: 2 ok" in out and out.count("left out: ") == 2 and "would stop" not in out
    assert main(["validate", str(suite), *arguments[:2]]) == 0
    assert capsys.readouterr().out.count("note: not here, so not checked: mnist: ") == 1
    assert main(["run", str(suite), *arguments, "--only", "dataset=digits,shuffled"]) == 3
    assert "train-images-idx3-ubyte.gz is not there" in capsys.readouterr().err
    suite.write_text(content.replace("digits: {}", columns.removeprefix("digits: {}\n      ")))
    assert main(["run", str(suite), *arguments]) == 3
    assert capsys.readouterr().err.count("mnist:") == 1
    (suite.parent / "mine.npz").write_bytes(b"no archive")
    mine = "mine: {data: npz, options: {file: mine.npz, shape: [1, 8, 8]}}"
    suite.write_text(content.replace("digits: {}", f"digits: {{}}\n      {mine}"))
    assert main(["run", str(suite), *arguments]) == 3
    assert "mine.npz" in capsys.readouterr().err and len(stand_in) == 2


def test_the_fork_server_is_started_before_planning(suite, monkeypatch, capsys):
    order = []

    def start_server(kinds, datasets, kernels):
        order.append([*kinds, *datasets])

    def plan(*_, **__):
        order.append("plan")
        raise UserError("stop here")

    monkeypatch.setattr("harness.execution.local.process.start_trial_server", start_server)
    monkeypatch.setattr("harness.interface.plan.settle", plan)
    suite.write_text(SUITE.replace("digits: {}", "digits: {}\n      mixed: {data: mnist, permute: 1}"))
    assert main(["run", str(suite)]) == 2
    assert order == [["density", "digits", "mnist"], "plan"]
    suite.write_text("- no suite\n")
    assert main(["run", str(suite)]) == 2
    assert order[2:] == [], "a file that is not a suite starts no server"


def test_a_missing_data_root_ends_with_3_and_a_wrong_out_with_2(suite, capsys, monkeypatch):
    assert main(["run", str(suite), "--out", str(suite)]) == 2
    assert "choose another --out" in capsys.readouterr().err
    assert main(["run", str(suite), "--data", "absent"]) == 3
    assert "--data absent: no such folder" in capsys.readouterr().err
    monkeypatch.setenv("INVERTBENCH_DATA", "gone")
    assert main(["run", str(suite)]) == 3
    assert "$INVERTBENCH_DATA gone: no such folder" in capsys.readouterr().err


@pytest.mark.system
def test_a_run_from_start_to_report(suite, capsys, monkeypatch):
    """Run a suite, then the commands that use its records."""
    assert main(["run", str(suite), "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    folder = suite.parent / "reports" / "tiny"
    table = (folder / "table.md").read_text()
    assert "# A tiny suite" in table and "| butterfly" in table
    assert "\nA tiny suite\n" in out and "\nbutterfly  " in out and "|" not in out
    assert len(list((folder / "records").glob("*.json"))) == 2

    def refuse(*_, **__):
        raise AssertionError("a finished suite ran again")

    monkeypatch.setattr("harness.execution.local.supervisor.run_trials", refuse)
    before = (folder / "results.csv").read_bytes()
    assert main(["run", "tiny.yaml"]) == 0
    assert "nothing to run" in capsys.readouterr().out
    assert (folder / "results.csv").read_bytes() == before
    (folder / "table.md").unlink()
    assert main(["report", "reports/tiny"]) == 0 and (folder / "table.md").read_text() == table
    assert main(["status", "reports"]) == 0 and "2 trials: 2 ok" in capsys.readouterr().out


def test_a_run_executes_trials_without_an_outcome(suite, capsys, stand_in):
    assert main(["run", "tiny.yaml", "--only", "layer=conv1x1"]) == 0
    assert [trial.layer.row for trial in stand_in] == ["conv1x1"]
    assert "1 trial: 1 ok" in (out := capsys.readouterr().out) and "missing" not in out and "butterfly" not in out
    assert Plan.load(Path("reports/tiny")).command.endswith("--only layer=conv1x1")
    assert main(["run", "tiny.yaml"]) == 0
    assert [trial.layer.row for trial in stand_in] == ["conv1x1", "butterfly"]
    assert main(["run", "tiny.yaml", "--only", "layer=conv1x1"]) == 0
    assert "1 trial: 1 ok" in capsys.readouterr().out
    assert main(["run", "tiny.yaml"]) == 0
    assert "2 trials: 2 ok" in capsys.readouterr().out and len(stand_in) == 2


def fail(status, reason, **notes):
    """Change the record of butterfly's trial; return its path."""
    [path] = Path("reports/tiny/records").glob("*butterfly*")
    record = read_record(path)
    record.status, record.reason, record.notes = status, reason, notes
    write_record(path.parent, record)
    return path


def test_failed_trials_run_again_on_request(suite, capsys, stand_in):
    assert main(["run", "tiny.yaml"]) == 0
    fail("diverged", "NaN at step 2")
    capsys.readouterr()
    assert main(["status", "reports/tiny"]) == 1
    assert "diverged: NaN at step 2" in capsys.readouterr().out
    assert main(["report", "reports/tiny"]) == 1
    assert main(["run", "tiny.yaml"]) == 1 and len(stand_in) == 2
    assert "1 trial failed before, and only --retry-failed runs them again" in capsys.readouterr().out
    assert main(["plan", "tiny.yaml", "--retry-failed"]) == 0
    assert "a run does 1 trial" in capsys.readouterr().out
    assert main(["run", "tiny.yaml", "--retry-failed"]) == 0 and len(stand_in) == 3


def test_a_trial_with_a_damaged_record_runs_again(suite, capsys, stand_in):
    assert main(["run", "tiny.yaml"]) == 0
    fail("ok", None).write_text("{")
    named = r"records/\S+\.json: not a readable record \(.*EOF while parsing .*\); run the suite again"
    for command, code in (["plan", "tiny.yaml"], 0), (["status", folder := "reports/tiny"], 1), (["report", folder], 1):
        assert main(command) == code and (command[0] == "plan" or re.search(named, capsys.readouterr().out))
    assert main(["compare", folder, folder]) == 1 and re.search(f"damaged in B: {named}", capsys.readouterr().out)
    assert main(["run", "tiny.yaml"]) == 0 and len(stand_in) == 3
    assert re.search(f"damaged: {named}", capsys.readouterr().out)
    assert main(["status", folder]) == 0 and "damaged" not in capsys.readouterr().out


def lines_without(modules, *arguments):
    """Return the lines that a command prints in a process, which imports none of the modules."""
    code = (
        "import sys; from harness.cli.parser import main; main(sys.argv[2:]); "
        "print([name for name in sys.argv[1].split() if name in sys.modules])"
    )
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    words = [sys.executable, "-c", code, modules, *arguments]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
    *lines, imported = done.stdout.splitlines()
    assert imported == "[]", arguments
    return "\n".join(lines)


def test_status_imports_no_torch_and_no_numpy(suite, stand_in):
    assert main(["run", "tiny.yaml"]) == 0
    assert "2 trials: 2 ok" in lines_without("torch numpy pandas layers flows", "status", "reports")


def test_a_record_of_another_suite_is_named_and_left_out(suite, capsys, stand_in):
    assert main(["run", "tiny.yaml", "--out", "other", "--set", "threads=2"]) == 0
    suite.write_text(SUITE.replace("suite: tiny", "suite: another"))
    assert main(["run", "tiny.yaml"]) == 0
    [other, _] = sorted(Path("reports/another/records").glob("*.json"))
    [same, _] = sorted(Path("other/tiny/records").glob("*.json"))
    suite.write_text(SUITE)
    assert main(["run", "tiny.yaml"]) == 0
    for path in (other, same):
        shutil.copy(path, "reports/tiny/records")
    for command in (["status"], ["report"], ["compare", "reports/tiny"], ["run", "tiny.yaml"]):
        capsys.readouterr()
        assert main(command if command[0] == "run" else [*command, "reports/tiny"]) == 0
        out = capsys.readouterr().out
        assert f"left out: reports/tiny: the record of {other.stem}, a trial of the suite 'another'" in out
        assert same.stem not in out, "the same suite with other settings, which the same command brings back"


def test_limits_come_from_the_command_the_profile_and_the_suite(suite, stand_in):
    suite.write_text(SUITE.replace("profiles:", "timeout: 2 h\nmemory: 8GiB\nprofiles:"))
    assert main(["run", "tiny.yaml"]) == 0
    assert (stand_in.run_options.timeout, stand_in.run_options.memory) == (7200, 8 << 30)
    trials = list(stand_in)
    for path in Path("reports/tiny/records").iterdir():
        path.unlink()
    text = suite.read_text().replace("    datasets:", "    timeout: 30 min\n    datasets:")
    suite.write_text(text)
    arguments = ["--memory", "1.5 GiB", "--checkpoint", "0", "--fail-fast", "--set", "timeout=5"]
    assert main(["run", "tiny.yaml", *arguments]) == 0
    options = stand_in.run_options
    assert (options.timeout, options.memory, options.checkpoint) == (5, 3 << 29, 0)
    assert stand_in[2:] == trials, "limits are not part of a trial, so its id stays"
    stand_in.reporter.finished(trials[0], blank_record(trials[0], "ok", None))
    with pytest.raises(FailedFast):
        stand_in.reporter.finished(trials[0], blank_record(trials[0], "oom", ""))


def test_threads_are_divided_among_jobs_on_request(suite, stand_in, monkeypatch):
    monkeypatch.setattr("harness.execution.executor.usable_cores", lambda: 12)
    for jobs, threads in ((None, 12), (3, 4), (5, 2), (20, 1)):
        asked = ["--jobs", str(jobs)] if jobs else []
        assert main(["run", "tiny.yaml", "--set", "threads=auto", *asked]) == 0
        assert stand_in[-1].threads == threads
    assert len({trial.id for trial in stand_in}) == 8, "the number of threads changes the last digits, hence the id"


def test_the_data_are_part_of_a_trial(suite, stand_in, monkeypatch, capsys):
    """Changed arrays give new trial ids; data that are not checked keep their last checksum."""
    for sums in ("aaa", "bbb", "aaa"):
        splits = replace(Digits().load(None, {}), checksum=sums)
        monkeypatch.setattr(Digits, "check", lambda self, store, options, new, splits=splits: splits)
        assert main(["run", "tiny.yaml"]) == 0
    assert [trial.data.checksum for trial in stand_in] == ["aaa", "aaa", "bbb", "bbb"]
    assert len({trial.id for trial in stand_in}) == 4

    def missing(self, store, options, new):
        raise DataMissing("digits: gone")

    monkeypatch.setattr(Digits, "check", missing)
    capsys.readouterr()
    assert main(["plan", "tiny.yaml"]) == 0
    out = capsys.readouterr().out
    assert "2 trials: 2 ok" in out and out.endswith("because of its data:\ndigits: gone\n")
    assert main(["run", "tiny.yaml"]) == 3


def test_a_second_run_on_a_folder_is_refused(suite, stand_in, capsys):
    folder = make_folder(Path("reports/tiny"))
    with claimed(folder):
        assert main(["run", "tiny.yaml"]) == 2
        error = "reports/tiny: another run uses this folder; wait for its end, or choose another --out\n"
        assert capsys.readouterr().err == error
        assert main(["plan", "tiny.yaml"]) == 0, "plan needs no lock"
    assert stand_in == [] and main(["run", "tiny.yaml"]) == 0


def test_a_folder_that_cannot_be_read_is_named(suite, stand_in, capsys):
    """As a file in its place, since an administrator can read every folder."""
    assert main(["run", "tiny.yaml"]) == 0
    shutil.rmtree("reports/tiny/records")
    Path("reports/tiny/records").touch()
    capsys.readouterr()
    for arguments in (["status", "reports"], ["report", "reports/tiny"], ["compare", "reports/tiny", "reports/tiny"]):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith("reports/tiny/records: cannot be read (Not a directory)") and error.count("\n") == 1
    assert main(["run", "tiny.yaml"]) == 2
    assert capsys.readouterr().err.startswith("reports/tiny: cannot be written to (File exists)")


@pytest.mark.parametrize(
    ("status", "declared", "code"), [("oom", "", 1), ("unsupported", "", 1), ("unsupported", "unsupported: true\n", 0)]
)
def test_trials_that_fail_end_with_1_and_unsupported_is_ok_where_declared(
    suite, capsys, stand_in, status, declared, code
):
    suite.write_text(declared + SUITE)
    stand_in.status = status
    assert main(["run", "tiny.yaml"]) == code and f"2 {status}" in capsys.readouterr().out


def test_a_quiet_run_prints_one_line_and_host_names_the_machine(suite, capsys, stand_in):
    assert main(["run", "tiny.yaml", "--quiet"]) == 0
    expected = "tiny, profile quick, on cpu: 2 trials: 2 ok; the report is in reports/tiny\n"
    assert capsys.readouterr() == (expected, "")
    assert Path("reports/tiny/table.md").exists()
    assert main(["run", "tiny.yaml"]) == 0
    assert main(["run", "tiny.yaml", "--host", "--seeds", "2"]) == 0
    named = {path.stem: read_record(path).environment.get("host") for path in Path("reports/tiny/records").iterdir()}
    assert [named[trial.id] for trial in stand_in] == [None, None, platform.node(), platform.node()]


def test_an_interrupt_ends_with_130(suite, capsys, stand_in):
    stand_in.until = 1
    assert main(["run", "tiny.yaml"]) == 130
    assert capsys.readouterr().err.startswith("interrupted")


def test_validate_counts_the_trials_and_plan_prints_each(suite, capsys):
    assert main(["validate", "tiny.yaml"]) == 0
    assert capsys.readouterr().out == "ok: tiny.yaml (quick 2 trials)\n"
    assert main(["validate", "tiny.yaml", "--profile", "quick"]) == 0
    assert main(["validate", "tiny.yaml", "--profile", "paper"]) == 2
    assert main(["plan", "tiny.yaml", "--seeds", "2"]) == 0
    out = capsys.readouterr().out
    assert out.count("to run") == 5 and "4 trials: 4 to run" in out
    assert not Path("reports").exists()


def test_a_plan_tells_the_power_of_more_repetitions(suite, many_seeds, write_run, capsys):
    """By the spread of those that have run there: three of them tell what eight would find."""
    folder = write_run(*many_seeds(3))
    out = Path("out/tiny")
    out.parent.mkdir()
    folder.rename(out)
    assert main(["plan", "tiny.yaml", "--out", "out"]) == 0
    assert "of 8 seeds that vary as these 3 would find with 80 % probability" in capsys.readouterr().out


def test_list_datasets_describes_every_data_set(capsys):
    assert main(["list", "datasets"]) == 0
    pages = capsys.readouterr().out.strip().split("\n\n")
    assert [page.partition(":")[0] for page in pages] == sorted(DATASETS)
    for page, name in zip(pages, sorted(DATASETS), strict=True):
        dataset = DATASETS[name]
        text = " ".join(page.split())
        for fact in (dataset.info.what, dataset.info.size, dataset.info.licence, dataset.info.source):
            assert " ".join(fact.split()) in text
        assert all(f"{option}" in text for option in dataset.options_model.model_fields)
        assert max(map(len, page.splitlines())) <= 118


@pytest.mark.parametrize(
    ("what", "words"), [("layers", "full_depth_at"), ("datasets", "scikit-learn"), ("suites", "quickstart")]
)
def test_list_of_layers_suites_and_datasets_imports_no_torch(what, words):
    assert words in lines_without("torch", "list", what)


@pytest.mark.system
def test_a_plan_imports_nothing_that_only_training_or_reports_need():
    heavy = "torch._dynamo sympy matplotlib pandas sklearn"
    lines_without(heavy, "plan", "density", "--profile", "smoke")  # scipy draws the candidates of a tuning
    lines_without(f"{heavy} scipy", "plan", "runtime", "--profile", "smoke")


@pytest.mark.system
def test_the_document_of_a_refused_layer(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "from layers.conv1x1 import Conv1x1\n\n\n"
        "class Mine(Conv1x1):\n"
        "    def forward(self, x):\n"
        "        y, log_det = super().forward(x)\n"
        "        return y, log_det / self.positions\n"
    )
    assert main(["check-layer", "mine.py:Mine", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["layer"], document["verdict"], document["ended"]) == ("mine.py:Mine", "refused", None)
    verdicts = {rule["rule"]: rule["verdict"] for rule in document["rules"]}
    assert verdicts["log-det"] == "failed" and verdicts["inverse"] == "passed" and len(verdicts) > 20
    findings = next(rule["findings"] for rule in document["rules"] if rule["rule"] == "log-det")
    assert "multiply by n" in findings[0]["message"] and findings[0]["place"].startswith("shape (")


@pytest.mark.system
def test_a_failed_audit_ends_with_1_and_a_corrected_file_runs_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    honest = (PROJECT / "examples" / "householder.py").read_text()
    Path("layer.py").write_text(honest.replace("self.positions * self.log_scale.sum()", "self.log_scale.sum() + 7.0"))
    command = ["run", "mimic", "--profile", "smoke", "--only", "layer=Householder", "--out", "out"]
    command += ["--layer", "./layer.py:Householder", "--unchecked"]
    assert main(command) == 1
    printed = capsys.readouterr()
    assert "1 trial: 0 ok, 1 audit failed" in printed.out and "audit failed" in printed.err
    assert main(["status", "out"]) == 1
    assert "log-det is" in capsys.readouterr().out
    Path("layer.py").write_text(honest)
    assert main(command) == 0
    assert "1 trial: 1 ok" in capsys.readouterr().out
