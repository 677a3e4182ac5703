"""The table of test events: mean, median and worst of each model, over the seeds."""

import math

import pytest
import torch

from harness.core.records import blank_record
from harness.evaluation.evaluation import Evaluation, Parts
from harness.kinds.density.tables.events import events_table
from harness.kinds.density.tables.table_rows import rows_table
from harness.kinds.density.trial import DensityTrial
from harness.reporting.frame import Results
from harness.reporting.report import ReportedResults


@pytest.fixture
def measured(density_run):
    """Return the density run; in each trial the median is 0.25 below the mean and the worst event 5 above it."""
    plan, records = density_run
    for trial, record in zip(plan.trials, records, strict=True):
        if isinstance(trial, DensityTrial):
            mean = record.rows[0][record.rows[0]["unit"]]
            record.rows[0] |= {"median": mean - 0.25, "worst": mean + 5}
    return plan, records


def events(plan, records):
    results = ReportedResults.of(plan, records)
    table = events_table(results)
    assert table == results.report.tables[2], "after the likelihoods and the choices"
    return table


def test_records_without_these_measures_make_no_table(density_run):
    plan, records = density_run
    assert events_table(Results.of(plan, records)) is None
    assert not any(table.name.endswith("-events") for table in ReportedResults.of(plan, records).report.tables)


def test_the_table_of_likelihoods_names_the_worst_event(measured):
    plan, records = measured
    records[1].rows[0]["worst"] = 77.5  # one seed of the second layer on digits
    note = ReportedResults.of(plan, records).report.tables[0].notes[-1]
    assert note.startswith("worst test event: digits 77.500 bits/dim (my_layer & co, whose mean is 3.000); waveforms ")


def test_three_columns_per_data_set_in_its_unit_over_the_seeds(measured):
    plan, records = measured
    table = events(plan, records)
    digits, waves = "digits, bits/dim ↓", "waveforms, nats/dim ↓"
    assert table.header == (
        "layer",
        *(f"{unit}, {name}" for unit in (digits, waves) for name in ("mean", "median", "worst")),
    )
    assert table.rows == (
        ("conv1x1", "2.010", "1.760", "7.010", "-2.010", "-2.260", "2.990"),
        ("my_layer & co", "3.010", "2.760", "8.010", "-3.010", "-3.260", "1.990"),
        ("<script>", "4.010", "3.760", "9.010", "-4.010", "-4.260", "0.990"),
    )
    assert table.notes == () and "mean over 3 seeds" in table.caption
    line = Results.of(plan, records).table.iloc[0]
    assert (line["median"], line["worst"]) == (1.75, 7.0)
    last = {trial.id for trial in plan.trials if isinstance(trial, DensityTrial) and trial.seed == 2}
    fewer = [trial for trial in plan.trials if not (trial.id in last and trial.data.label == "waveforms")]
    assert "each the mean over 2 or 3 seeds" in events(plan.limited(fewer), records).caption


def test_rows_of_tables_have_their_likelihood_in_the_units_of_the_file(measured):
    plan, records = measured
    assert rows_table(Results.of(plan, records)) is None, "neither images nor windows are rows"
    for trial, record in zip(plan.trials, records, strict=True):
        if isinstance(trial, DensityTrial) and trial.data.label == "waveforms":
            record.rows[0]["nats_per_event"] = 100 + record.rows[0]["nats_per_dim"]
    failed = next(
        record
        for trial, record in zip(plan.trials, records, strict=True)
        if isinstance(trial, DensityTrial) and trial.data.label == "waveforms" and trial.layer.row == "<script>"
    )
    failed.rows[0] |= {"nats_per_dim": None, "nats_per_event": None}
    results = ReportedResults.of(plan, records)
    [table] = [table for table in results.report.tables if table.name.endswith("-rows")]
    assert table.header == ("layer", "waveforms, nats/row ↓") and "in the units of the file" in table.caption
    assert [cells[1].split(" ")[0] for cells in table.rows] == ["97.990", "96.990", "95.985"]
    assert table.notes == ("[1] <script> on waveforms: 1 of 3 trials have no value",)


def test_median_and_worst_are_computed_per_event():
    values = torch.tensor([[1.0, 2.0, 3.0, 4.0, 90.0], [3.0, 2.0, 9.0, 4.0, 110.0]], dtype=torch.float64)
    none = torch.zeros(0)
    parts = Parts(0.0, 0.0, 0.0)
    result = Evaluation(22.2, 0.0, 0.0, None, values, 0.0, parts, None, "test", 5, 0, torch.float32, none, none, ())
    assert (result.median, result.worst) == (4.0, 100.0), "draws are averaged first"
    for bad, median, worst in ((math.inf, 4.0, math.inf), (math.nan, math.nan, math.nan)):
        values[0, 4] = bad
        assert (result.median, result.worst) == pytest.approx((median, worst), nan_ok=True)


def test_failures_failed_audits_estimates_and_non_finite_values_are_marked(measured):
    plan, records = measured
    records[0] = blank_record(plan.trials[0], "diverged", "loss is nan")
    for record in records[2:18:6]:
        record.rows[0]["worst"] = None
        record.notes["worst"] = "the value is inf"
    records[3].rows[0] |= {"audit": "failed", "audit_reason": "x -> z -> x is lost"}
    records[4].rows[0]["estimate_error"] = 0.1
    table = events(plan, records)
    assert table.rows[0][1:] == (
        "2.015 (2 of 3 seeds, diverged)",
        "1.765 (2 of 3 seeds, diverged)",
        "7.015 (2 of 3 seeds, diverged)",
        "-2.010 †",
        "-2.260 †",
        "2.990 †",
    )
    assert table.rows[1][4:] == ("≈ -3.010", "≈ -3.260", "≈ 1.990")
    assert table.rows[2][1:4] == ("4.010", "3.760", "no value [1]")
    assert [note[:3] for note in table.notes] == ["[1]", "≈ a", "† n"]
    assert table.notes[0] == "[1] <script> on digits, worst: the value is inf"
    few = events(plan, records[1:2])
    assert few.rows[0][1:] == ("missing",) * 6 and few.rows[1][1] == "3.000 (1 of 3 seeds, missing)"
