import pandas as pd
import pytest

from harness.cli.parser import main
from harness.kinds.density.figures import pareto
from harness.kinds.density.models import Model, fields
from harness.kinds.density.tables.equal_terms import equal_terms_table, nearest_counts
from harness.reporting.frame import Results

ROWS = ("conv1x1", "my_layer & co", "<script>")
BITS = "digits, bits/dim ↓"


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


def cells(run, terms):
    plan, records = run
    table = equal_terms_table(Results.of(plan, records), terms)
    return {row[0]: dict(zip(table.header, row, strict=True)) for row in table.rows}, table


def test_at_equal_steps_rows_are_compared_at_the_step_of_the_shortest(curved):
    grid, table = cells(curved, "steps")
    assert table.header[1] == f"{BITS}, at step 30"
    assert grid["conv1x1"][f"{BITS}, at step 30"] == "3.477 [3.467, 3.487]"  # 2 + 44 / 30 + 0.01 * seed
    assert grid["<script>"][f"{BITS}, at step 30"] == "5.477 [5.467, 5.487]", "not its last value"


def test_one_seed_of_a_width_has_its_standard_error_and_mark(two_widths, one_seed):
    for record in two_widths[1]:
        record.rows[0] |= {"standard_error": 0.02, "best_step": 40, "stopped_early": False}
    grid, table = cells(one_seed(two_widths), "width")
    assert grid["conv1x1"][table.header[1]] == "2.000 ± 0.020 ‡, 1,000 parameters"
    assert "test split, one seed;" in table.caption and [note[0] for note in table.notes] == ["±", "‡"]


def test_at_equal_seconds_slow_rows_have_fewer_steps(curved):
    grid, table = cells(curved, "seconds")
    head = f"{BITS}, at 30 s"
    assert table.header[1] == head
    assert grid["conv1x1"][head].startswith("3.477"), "all 30 of its steps"
    assert grid["my_layer & co"][head].startswith("7.410"), "10 steps in 20 s: the next validation is too late"
    assert grid["<script>"][head].startswith("8.410"), "10 steps in 30 s"


def test_the_best_validation_so_far_counts(curved):
    plan, records = curved
    records[0].curves["validation"] = [2.5, 3.0, 9.0]
    for record in records[6:18:6]:
        record.curves["validation"] = [2.5, 3.0, 9.0]
    assert cells((plan, records), "steps")[0]["conv1x1"][f"{BITS}, at step 30"] == "2.500 [2.500, 2.500]"


def test_rows_that_are_too_slow_or_fail_or_fail_their_audit_are_marked(curved):
    plan, records = curved
    for record in records[2:18:6]:
        record.curves["seconds"] = [100, 200, 300, 400]
    records[1].rows[0]["audit"] = "failed"
    records[4].status, records[4].rows = "diverged", []
    grid, table = cells((plan, records), "seconds")
    assert grid["<script>"][f"{BITS}, at 30 s"] == "– [1]" and "no validation as early as 30 s" in table.notes[0]
    assert grid["my_layer & co"][f"{BITS}, at 30 s"].endswith(" †") and "audit failed" in table.notes[-1]
    assert grid["my_layer & co"]["waveforms, nats/dim ↓, at 30 s"].endswith(" (diverged)")


def test_times_of_two_machines_and_missing_times_are_not_compared(curved):
    plan, records = curved
    for number, record in enumerate(records):
        record.environment["cpu"] = "One" if number else "Two"
    del records[3].curves["seconds"]
    grid, table = cells((plan, records), "seconds")
    assert set(grid["conv1x1"].values()) == {"conv1x1", "–"}
    assert "One and Two" in table.notes[0] and "not every trial has recorded" in table.notes[1]


def test_at_equal_width_columns_of_the_same_data_are_merged(two_widths):
    grid, table = cells(two_widths, "width")
    heads = [f"digits and waveforms, bits/dim ↓, width {width}" for width in (8, 32)]
    assert list(table.header) == ["layer", *heads]
    assert grid["conv1x1"][heads[0]] == "2.010 [2.000, 2.020], 1,000 parameters"
    assert grid["conv1x1"][heads[1]] == "1.010 [1.000, 1.020], 10,000 parameters"


def test_at_equal_parameters_the_nearest_trained_width_is_shown(two_widths):
    plan, records = two_widths
    for record in records:  # the last row is as large at width 8 as the others are at 32
        if record.trial["layer"]["row"] == "<script>" and record.trial["flow"]["width"] == 8:
            record.rows[0]["parameters"] = 10500
    grid, table = cells((plan, records), "parameters")
    head = table.header[1]
    assert head == "digits and waveforms, bits/dim ↓, near 10,500 parameters [1]"
    assert grid["conv1x1"][head].endswith("10,000 at width 32")
    assert grid["my_layer & co"][head].endswith("11,000 at width 32")
    assert grid["<script>"][head].endswith("10,500 at width 8"), "not its 12,000"
    assert "from 10,000 to 11,000, a factor of 1.10" in table.notes[0]


def model(row, parameters):
    return Model(row, 1, pd.DataFrame(), parameters)


def test_the_common_count_minimises_the_largest_distance_of_a_row():
    target, chosen = nearest_counts([model("a", 10), model("a", 100), model("b", 90), model("c", 120)])
    assert target == 100 and [row.parameters for row in chosen] == [100, 90, 120]


def test_the_pareto_front_has_the_points_that_none_dominates():
    assert pareto.front([(3, 1.0), (1, 2.0), (2, 2.0), (1, 3.0), (4, 1.5)]) == [(1, 2.0), (3, 1.0)]


def test_pareto_panels_show_every_width_and_mark_failed_audits(two_widths):
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
