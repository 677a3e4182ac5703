"""The table of test events: mean, median and worst of each model, over the seeds."""

import math

import pytest
import torch

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
