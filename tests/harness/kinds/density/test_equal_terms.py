"""Comparisons at equal steps, seconds, widths and parameters: tables and the figure of Pareto fronts."""

import pandas as pd
import pytest
from toys import ROWS

from harness.cli.parser import main
from harness.kinds.density.figures import pareto
from harness.kinds.density.models import Model, fields
from harness.kinds.density.tables.equal_terms import equal_terms_table, nearest_counts
from harness.reporting.frame import Results
from harness.reporting.tables.rendering import markdown


@pytest.fixture
def curved(density_run):
    """Return the density run with row n taking n times the seconds per step; the first row ends at step 30 of 40."""
    plan, records = density_run
    for record in records[:18]:
        slowness = 1 + ROWS.index(record.trial["layer"]["row"])
        curves = record.curves
        curves["seconds"] = [slowness * step for step in curves["step"]]
        if slowness == 1:
            record.curves = {name: values[:3] for name, values in curves.items()}
    return plan, records


@pytest.fixture
def two_widths(density_run, replanned):
    """Return a run with two columns of digits: width 8, and width 32 with ten times the parameters."""

    def change(trial):
        if trial.kind == "density":
            return {"data.name": "digits", "flow.width": 32 if trial.data.label == "waveforms" else 8}
        return None

    plan, records = replanned(density_run, change)
    for record in records:
        wide = record.trial["flow"]["width"] == 32
        record.rows[0] |= {"unit": "bits_per_dim", "train_seconds": 5.0 if wide else 1.0}
        record.rows[0]["parameters"] = (1000 + 100 * ROWS.index(record.trial["layer"]["row"])) * (10 if wide else 1)
        record.rows[0]["bits_per_dim"] -= wide
    return plan, records


def shown(run, terms):
    return markdown(equal_terms_table(Results.of(*run), terms))


def test_rows_are_compared_at_the_step_and_the_time_of_the_shortest(curved, check_text):
    """At 30 s the second row has 10 steps, as the next validation is too late; the best validation so far counts."""
    tables = [shown(curved, terms) for terms in ("steps", "seconds")]
    for record in curved[1][:18:6]:
        record.curves["validation"] = [2.5, 3.0, 9.0]
    check_text("equal_steps", *tables, shown(curved, "steps"))


def test_rows_that_are_too_slow_or_fail_or_cannot_be_compared_are_marked(curved, check_text):
    _, records = curved
    for record in records[2:18:6]:
        record.curves["seconds"] = [100, 200, 300, 400]
    records[1].rows[0]["audit"] = "failed"
    records[4].status, records[4].rows = "diverged", []
    table = shown(curved, "seconds")
    for number, record in enumerate(records):
        record.environment["cpu"] = "One" if number else "Two"
    del records[3].curves["seconds"]
    check_text("equal_seconds", table, shown(curved, "seconds"))


def test_columns_of_the_same_data_are_merged_at_equal_width_and_near_equal_parameters(two_widths, one_seed, check_text):
    """One seed has its standard error; at equal parameters each row has the trained width that is nearest."""
    _, records = two_widths
    for record in records:
        record.rows[0] |= {"standard_error": 0.02, "best_step": 40, "stopped_early": False}
    tables = [shown(run, "width") for run in (two_widths, one_seed(two_widths))]
    for record in records:  # the last row is as large at width 8 as the others are at 32
        if record.trial["layer"]["row"] == "<script>" and record.trial["flow"]["width"] == 8:
            record.rows[0]["parameters"] = 10500
    check_text("equal_width", *tables, shown(two_widths, "parameters"))


def test_the_common_count_minimises_the_largest_distance_of_a_row():
    models = [Model(row, 1, pd.DataFrame(), count) for row, count in (("a", 10), ("a", 100), ("b", 90), ("c", 120))]
    target, chosen = nearest_counts(models)
    assert target == 100 and [row.parameters for row in chosen] == [100, 90, 120]


def test_pareto_panels_show_every_width_and_mark_failed_audits(two_widths):
    assert pareto.front([(3, 1.0), (1, 2.0), (2, 2.0), (1, 3.0), (4, 1.5)]) == [(1, 2.0), (3, 1.0)]
    plan, records = two_widths
    records[0].rows[0]["audit"] = "failed"
    figure = pareto.figures(Results.of(plan, records))["pareto"]
    assert [axes.get_xlabel() for axes in figure.axes] == ["parameters", "seconds of training"]
    points = [line for line in figure.axes[0].lines if line.get_marker() not in ("None", "_", "|", "")]
    assert [line.get_xdata()[0] for line in points] == [1000, 10000, 1100, 11000, 1200, 12000]
    assert [line.get_markerfacecolor() == "white" for line in points] == [True] + [False] * 5
    dashed = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    assert list(dashed[0].get_xdata()) == [1100, 10000, 10000], "the cheapest does not compete"
    for number, record in enumerate(records):
        record.environment["cpu"] = "One" if number % 6 < 3 else "Two"
    figure = pareto.figures(Results.of(plan, records))["pareto"]
    assert [axes.get_xlabel() for axes in figure.axes] == ["parameters"]


def test_columns_of_different_data_are_separate_fields(density_run):
    plan, records = density_run
    made = fields(Results.of(plan, records))
    assert [(field.name, field.unit) for field in made] == [("digits", "bits_per_dim"), ("waveforms", "nats_per_dim")]
    assert [model.row for model in made[0].models] == list(ROWS) and len(made[0].models[0].trials) == 3


def test_counts_and_times_have_no_equal_terms(parameters_run, write_run, capsys):
    folder = write_run(*parameters_run)
    assert main(["report", str(folder), "--at", "width"]) == 2
    assert "of kind parameters" in capsys.readouterr().err and not (folder / "table.md").exists()
