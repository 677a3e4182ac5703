import io
import re
from pathlib import Path

import pandas as pd
import pytest

import harness
from harness.core.records import blank_record
from harness.core.run_options import PROJECT
from harness.core.trial import TRIALS
from harness.reporting.frame import BESIDE, Results, csv_bytes


def test_columns_and_values_of_a_density_run_as_frame_and_as_csv(density_run, write_run):
    plan, records = density_run
    frame = harness.load_results(write_run(plan, records))
    assert str(frame.dtypes["bits_per_dim"]) == "Float64" and str(frame.dtypes["seed"]) == "Int64"
    frame = Results.of(plan, records).table
    runtime_only = [name for name in TRIALS["runtime"].columns if name not in TRIALS["density"].columns]
    assert list(frame.columns) == [*TRIALS["density"].columns, *runtime_only]
    density = frame[frame.operation.isna()]
    assert len(density) == 18
    assert density.iloc[0][["dataset", "layer", "seed", "status"]].to_list() == ["digits", "conv1x1", 0, "ok"]
    assert density.groupby("layer").bits_per_dim.mean()["my_layer & co"] == pytest.approx(3.01)
    timed = frame[frame.operation.notna()]
    assert len(timed) == 2 * 2 * 3
    assert timed.seed.isna().all() and timed.dataset.isna().all()
    text = csv_bytes(Results.of(plan, records[:3]).table).decode()
    assert "0.30000000000000004" in text
    assert "nan" not in text.lower() and "none" not in text.lower() and "<NA>" not in text
    assert pd.read_csv(io.StringIO(text)).parameters[0] == 1006
    assert ",1006," in text, "a count is a whole number"
    measures = {"claimed": -1.5, "best_step": 30, "stopped_early": True, "audit_reason": "log-det is 1"}
    records[0].rows[0] |= measures
    line = Results.of(plan, records).table.iloc[0]
    assert {name: line[name] for name in measures} == measures and line.unit == "bits_per_dim"


def test_every_planned_trial_is_a_row_in_plan_order_with_its_outcome(density_run):
    plan, records = density_run
    records[1] = blank_record(plan.trials[1], "killed", "the process was ended by SIGKILL")
    records[-1] = blank_record(plan.trials[-1], "error", "ValueError: no")
    del records[5]
    frame = Results.of(plan, reversed(records)).table
    assert list(dict.fromkeys(frame.id)) == [trial.id for trial in plan.trials]
    assert frame.status[1] == "killed" and pd.isna(frame.bits_per_dim[1])
    assert frame.status[5] == "missing" and frame.reason[5] == "not yet run"
    # A failed runtime trial has a failed row per layer and operation.
    failed = frame[frame.status == "error"]
    assert len(failed) == 6 and set(failed.operation) == {"forward", "inverse"} and failed["shape"].eq("4x32").all()


def test_a_row_keeps_its_own_status_and_reason(runtime_run):
    plan, records = runtime_run
    records[1].status, records[1].reason = "error", "<script> inverse: no"
    records[1].rows[-1].update(status="error", reason="no")
    frame = Results.of(plan, records).table
    lines = frame[frame.id == plan.trials[1].id]
    assert lines.status.to_list() == ["ok"] * 6 + ["unsupported", "unsupported", "error"]
    assert lines.reason.isna().to_list() == [True] * 6 + [False] * 3


def test_parameter_counts_have_a_column_of_published_counts(parameters_run):
    plan, records = parameters_run
    frame = Results.of(plan, records).table
    assert list(frame.columns) == list(TRIALS["parameters"].columns)
    rows = frame.set_index(["layer", "width"])
    assert rows.published["conv1x1", 64] == 6400
    assert pd.isna(rows.published["conv1x1", 16])
    assert rows.published["my_layer & co", 16] == 15280
    assert pd.isna(rows.published["<script>", 64])


def test_the_frame_has_more_columns_than_the_table_and_reasons_for_every_row(density_run):
    plan, records = density_run
    records[0] = blank_record(plan.trials[0], "oom", "too large " * 100)
    records[1].rows[0]["bits_per_dim"] = None
    results = Results.of(plan, records[:2])
    first, second, third = (results.frame.iloc[row] for row in range(3))
    assert (first["failure"], second["failure"], third["failure"]) == ("oom", "no value", "missing")
    assert first["cause"].endswith("… (the record has the rest)") and third["cause"] == "not yet run"
    assert second["notes"] == records[1].notes and third["notes"] == {}
    assert set(results.frame.columns) - set(results.table.columns) >= BESIDE.keys()


def test_a_trial_of_several_rows_has_the_worst_of_their_statuses(runtime_run, density_run):
    plan, records = runtime_run
    records[1].rows[-1].update(status="error", reason="no")
    assert list(Results.of(plan, records).statuses.values()).count("error") == 1
    assert Results.of(plan, records[2:]).status_line == "5 trials: 3 ok, 2 missing"
    plan, records = density_run
    records[0].rows[0]["audit"] = "failed"
    assert Results.of(plan, records).statuses[plan.trials[0].id] == "audit failed"


def test_the_example_of_the_documentation_runs(monkeypatch, capsys):
    """Run the example unchanged, on the committed report that it names."""
    monkeypatch.chdir(PROJECT)
    page = Path("docs/how-to/results.md").read_text()
    (code,) = re.findall(r"```python\n(from harness import load_results\n.*?)```", page, re.S)
    exec(code, {})
    printed = capsys.readouterr().out
    assert "butterfly" in printed and "digits" in printed
