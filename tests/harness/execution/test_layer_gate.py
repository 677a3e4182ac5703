"""`run` checks third-party layers by check-layer before trials start."""

import contextlib
import io
from pathlib import Path

import pandas as pd
import pytest

from harness.checking.check_layer import SHAPES
from harness.checking.isolated import check_in_process
from harness.checking.report import CheckReport
from harness.cli.parser import main
from harness.core.records import read_record
from harness.core.run_options import NOT_FULLY_CHECKED
from harness.core.settings import LayerRef
from harness.execution.gate import HINT, REFUSED, check_layers
from harness.planning.plan import Plan
from harness.reporting.report import ReportedResults

LAYERS = """\
import os

from layers.conv1x1 import Conv1x1


class Sound(Conv1x1):
    pass


class Wrong(Conv1x1):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det / self.positions


class Exits(Conv1x1):
    def forward(self, x):
        os._exit(0)
"""

COUNTED = """\
suite: counted
kind: parameters
layers:
  conv1x1: {}
  sound: {layer: "third_party.py:Sound"}
  again: {layer: "third_party.py:Sound"}
  wrong: {layer: "third_party.py:Wrong"}
  exits: {layer: "third_party.py:Exits"}
profiles:
  quick: {widths: [8], datasets: {digits: {shape: [1, 8, 8]}}, flow: {levels: 1, steps: 1}}
"""

TIMED = """\
suite: timed
kind: runtime
operations: [forward]
layers: {conv1x1: {}, sound: {layer: "third_party.py:Sound"}, wrong: {layer: "third_party.py:Wrong"}}
profiles:
  quick: {timing: {warmup: 1, rounds: 2}, sweeps: {side: {shapes: [[2, 4, 4]], batch: 2}}}
"""

UNCHECKED = "not checked by check-layer (--unchecked)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gate")
    for name, text in {"third_party.py": LAYERS, "counted.yaml": COUNTED, "timed.yaml": TIMED}.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)


def records(suite):
    folder = Path("reports") / suite
    plan = Plan.load(folder)
    paths = {trial: folder / "records" / f"{trial.id}.json" for trial in plan.trials}
    return {getattr(trial, "layer", None) and trial.layer.row: read_record(path) for trial, path in paths.items()}


@pytest.fixture(scope="module")
def output(folder):
    """Return the output of the first run of the suite."""
    stream = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(stream),
        contextlib.redirect_stderr(stream),
    ):
        patch.chdir(folder)
        assert main(["run", "counted.yaml"]) == 1
    return stream.getvalue()


@pytest.mark.system
def test_trials_of_a_refused_layer_do_not_run_and_the_others_do(output):
    assert output.count("check-layer third_party.py:Sound: passed") == 1, "once per layer and options"
    assert "check-layer third_party.py:Wrong: refused, so its trials do not run: log-det, shape" in output
    by_row = records("counted")
    statuses = {row: record.status for row, record in by_row.items()}
    assert statuses == {"conv1x1": "ok", "sound": "ok", "again": "ok", "wrong": "error", "exits": "error"}
    assert by_row["wrong"].reason.startswith(f"{REFUSED} log-det, shape") and by_row["wrong"].reason.endswith(HINT)
    assert "(forward, shape (4, 4, 4), float64): the process ended with exit code 0" in by_row["exits"].reason
    assert by_row["wrong"].environment["sources"] and str(Path.cwd()) not in by_row["wrong"].reason
    checks = pd.read_csv("reports/counted/results.csv").set_index("layer").check.fillna("").to_dict()
    assert checks == {"conv1x1": "", "sound": "passed", "again": "passed", "wrong": "", "exits": ""}


@pytest.mark.system
def test_unchecked_runs_refused_layers_and_tables_mark_them(output, capsys):
    assert main(["run", "counted.yaml"]) == 1
    assert "check-layer" not in capsys.readouterr().out.partition("\ncounted\n")[0], "none of its trials runs"
    assert main(["run", "counted.yaml", "--unchecked", "--retry-failed", "--only", "layer=wrong"]) == 0
    by_row = records("counted")
    assert by_row["wrong"].status == "ok" and by_row["wrong"].rows[0]["check"] == "unchecked"
    assert list(by_row) == ["wrong"], "the report covers what --only selects"
    table = Path("reports/counted/table.md").read_text()
    assert r"| wrong \[1] " in table and rf"- \[1] {UNCHECKED}" in table
    assert "--unchecked" in Plan.load(Path("reports/counted")).command


@pytest.mark.system
def test_a_sweep_point_is_measured_without_the_refused_layer():
    assert main(["run", "timed.yaml"]) == 1
    [record] = records("timed").values()
    assert record.status == "error" and record.reason.startswith(f"{REFUSED} log-det")
    rows = {row["layer"]: row for row in record.rows}
    assert rows["conv1x1"]["median_ms"] > 0 and "check" not in rows["conv1x1"]
    assert rows["sound"]["median_ms"] > 0 and rows["sound"]["check"] == "passed"
    assert rows["wrong"]["status"] == "error" and "median_ms" not in rows["wrong"]
    assert [layer["row"] for layer in record.trial["layers"]] == list(rows)
    assert main(["run", "timed.yaml", "--unchecked", "--retry-failed"]) == 0
    assert r"| wrong \[1] " in Path("reports/timed/table.md").read_text()


def test_a_layer_whose_import_ends_the_process_is_the_users_error(folder, capsys):
    (folder / "leaves.py").write_text("import os\n\nos._exit(0)\n")
    (folder / "leaves.yaml").write_text(COUNTED.replace("third_party.py:Wrong", "leaves.py:Any"))
    assert main(["validate", "leaves.yaml"]) == 2
    output = capsys.readouterr().err
    assert output.startswith("check-layer leaves.py:Any ended early (construction, import)") and "exit code 0" in output


LATE = f"{NOT_FULLY_CHECKED} gradients, large-events"


@pytest.mark.parametrize(("check", "text"), [("unchecked", UNCHECKED), (LATE, LATE)])
@pytest.mark.parametrize("kind", ["density", "runtime", "parameters"])
def test_every_table_marks_a_row_that_was_not_checked(kind, check, text, request):
    plan, run_records = request.getfixturevalue(f"{kind}_run")
    name = plan.rows[1]
    for record in run_records:
        for row in record.rows:
            if row.get("layer", record.trial.get("layer", {}).get("row")) == name:
                row["check"] = check
    table = ReportedResults.of(plan, run_records).report.tables[0]
    assert any(text in remark for remark in table.notes)
    assert [row[0] for row in table.rows if "[" in row[0]] == [f"{name} [1]"]


@pytest.fixture
def checks(monkeypatch):
    """Replace the check by one that runs out of time, and return the arguments of its calls."""
    calls, real = [], check_in_process

    def check(spec, options, *folder, **extent):
        if extent.get("shapes") == ():  # whether it can be imported
            return real(spec, options, *folder, **extent)
        calls.append((spec, options, extent))
        return CheckReport(spec, ("dense", "inverse"), begun={"dense"}, ended="late", overtime=True)

    monkeypatch.setattr("harness.checking.isolated.check_in_process", check)
    return calls


def test_trials_of_a_layer_that_is_not_fully_checked_run(checks, capsys):
    text = COUNTED.replace('wrong: {layer: "third_party.py:Wrong"}', "").replace("exits:", "wrong:")
    Path("late.yaml").write_text(text.replace("Exits", "Wrong").replace("counted", "late"))
    assert main(["run", "late.yaml"]) == 0
    assert "third_party.py:Sound: not fully checked" in capsys.readouterr().err
    late = f"{NOT_FULLY_CHECKED} inverse"
    rows = {row: record.rows[0].get("check") for row, record in records("late").items()}
    assert rows == {"conv1x1": None, "sound": late, "again": late, "wrong": late}
    assert late in Path("reports/late/table.md").read_text()


def test_layers_are_checked_at_the_shapes_and_batches_of_their_trials(checks, density_run, runtime_run, parameters_run):
    layer = LayerRef(row="sound", layer="third_party.py:Sound")
    density = next(trial for trial in density_run[0].trials if trial.kind == "density")
    training = density.training.model_copy(update={"batch_size": 50})
    density = density.model_copy(update={"layer": layer, "tuning": None, "training": training})
    assert density.data.name == "digits" and density.flow.levels == 2
    timed = [trial.model_copy(update={"layers": (layer,)}) for trial in runtime_run[0].trials]
    counted = parameters_run[0].trials[0].model_copy(update={"layer": layer})
    assert check_layers([density, *timed, counted], unchecked=False) == {
        layer.check_key: f"{NOT_FULLY_CHECKED} inverse"
    }
    [(_, _, extent)] = checks
    assert extent["shapes"][: len(SHAPES)] == SHAPES and not extent["large"]
    shapes = {(4, 4, 4), (8, 2, 2), (4, 32), (4, 16), (3, 4, 4), (3, 8, 8), (3, 16, 16)}
    assert shapes | set(SHAPES) == set(extent["shapes"])
    assert extent["batches"] == (1, 2, 4, 50, 256)


def test_layers_of_this_project_are_not_checked():
    assert LayerRef(row="a", layer="conv1x1").check_key is None
    assert LayerRef(row="a", layer="maf:flow", baseline=True).check_key is None
    ref = LayerRef(row="a", layer="layer.py:Layer", options={"rank": 1})
    assert ref.check_key == LayerRef(row="b", layer="layer.py:Layer", options={"rank": 1}).check_key
    assert ref.check_key != LayerRef(row="a", layer="layer.py:Layer", options={"rank": 2}).check_key
