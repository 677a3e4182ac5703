import pytest

from harness.cli.parser import main
from harness.kinds.density.figures import pareto
from harness.kinds.density.models import Model, fields
from harness.kinds.density.tables.equal_terms import equal_terms_table, nearest_counts
from harness.kinds.density.trial import DensityTrial
from harness.reporting.frame import Results
from harness.reporting.report import write_report

ROWS = ("conv1x1", "my_layer & co", "<script>")
BITS = "digits, bits/dim ↓"


@pytest.fixture
def curved(density_run):
    """The run of densities, each row n times as slow as the first, which has stopped after 30 of its 40 steps."""
    plan, records = density_run
    for record in records[:18]:
        slowness = 1 + ROWS.index(record.trial["layer"]["row"])
        curves = record.curves
        curves["seconds"] = [slowness * step for step in curves["step"]]
        if slowness == 1:
            record.curves = {name: values[:3] for name, values in curves.items()}
    return plan, records


@pytest.fixture
def two_widths(density_run):
    """Two columns of the same digits, at width 8 and at width 32, where every row has ten times the parameters."""
    plan, records = density_run
    trials, found = [], []
    for trial, record in zip(plan.trials[:18], records, strict=False):
        wide = trial.data.label == "waveforms"
        fields = trial.model_dump()
        fields["data"]["name"] = "digits"
        fields["flow"]["width"] = 32 if wide else 8
        trials.append(DensityTrial.model_validate(fields))
        record.rows[0] |= {"unit": "bits_per_dim", "train_seconds": 5.0 if wide else 1.0}
        record.rows[0]["parameters"] = (1000 + 100 * ROWS.index(trial.layer.row)) * (10 if wide else 1)
        record.rows[0]["bits_per_dim"] -= wide
        record.id, record.trial = trials[-1].id, trials[-1].model_dump(mode="json")
        found.append(record)
    return plan.model_copy(update={"trials": tuple(trials)}), found


def cells(run, terms):
    plan, records = run
    table = equal_terms_table(Results.of(plan, records), terms)
    return {row[0]: dict(zip(table.header, row, strict=True)) for row in table.rows}, table


def test_at_equal_steps_each_row_has_what_the_shortest_reached(curved):
    found, table = cells(curved, "steps")
    assert table.header[1] == f"{BITS}, at step 30"
    assert found["conv1x1"][f"{BITS}, at step 30"] == "3.477 [3.467, 3.487]"  # 2 + 44 / 30, and 0.01 of each seed
    assert found["<script>"][f"{BITS}, at step 30"] == "5.477 [5.467, 5.487]", "not its last value"


def test_estimates_are_marked_on_equal_terms_too(curved):
    plan, records = curved
    for record in records[:18:3]:
        record.rows[0]["estimate_error"] = 0.01
    table = equal_terms_table(Results.of(plan, records), "steps")
    rows = {row[0]: row[1] for row in table.rows}
    assert rows["conv1x1"].startswith("≈ 3.477") and rows["<script>"].startswith("5.477")
    assert "≈" in table.notes[-1]


def test_at_equal_seconds_slow_rows_have_fewer_steps(curved):
    found, table = cells(curved, "seconds")
    head = f"{BITS}, at 30 s"
    assert table.header[1] == head
    assert found["conv1x1"][head].startswith("3.477"), "all 30 of its steps"
    assert found["my_layer & co"][head].startswith("7.410"), "10 steps in 20 s: the next validation is too late"
    assert found["<script>"][head].startswith("8.410"), "10 steps in 30 s"


def test_the_best_validation_so_far_counts(curved):
    plan, records = curved
    records[0].curves["validation"] = [2.5, 3.0, 9.0]
    for record in records[6:18:6]:
        record.curves["validation"] = [2.5, 3.0, 9.0]
    assert cells((plan, records), "steps")[0]["conv1x1"][f"{BITS}, at step 30"] == "2.500 [2.500, 2.500]"


def test_a_row_that_is_too_slow_failed_or_is_no_likelihood_is_marked(curved):
    plan, records = curved
    for record in records[2:18:6]:
        record.curves["seconds"] = [100, 200, 300, 400]
    records[1].rows[0]["audit"] = "failed"
    records[4].status, records[4].rows = "diverged", []
    found, table = cells((plan, records), "seconds")
    assert found["<script>"][f"{BITS}, at 30 s"] == "– [1]" and "no validation as early as 30 s" in table.notes[0]
    assert found["my_layer & co"][f"{BITS}, at 30 s"].endswith(" †") and "audit failed" in table.notes[-1]
    assert found["my_layer & co"]["waveforms, nats/dim ↓, at 30 s"].endswith(" (diverged)")


def test_times_of_two_machines_or_none_are_not_drawn(curved):
    plan, records = curved
    for number, record in enumerate(records):
        record.environment["cpu"] = "One" if number else "Two"
    del records[3].curves["seconds"]
    found, table = cells((plan, records), "seconds")
    assert set(found["conv1x1"].values()) == {"conv1x1", "–"}
    assert "One and Two" in table.notes[0] and "not every trial has recorded" in table.notes[1]


def test_at_equal_width_columns_of_the_same_data_are_one(two_widths):
    found, table = cells(two_widths, "width")
    heads = [f"digits and waveforms, bits/dim ↓, width {width}" for width in (8, 32)]
    assert list(table.header) == ["layer", *heads]
    assert found["conv1x1"][heads[0]] == "2.010 [2.000, 2.020], 1,000 parameters"
    assert found["conv1x1"][heads[1]] == "1.010 [1.000, 1.020], 10,000 parameters"


def test_at_equal_parameters_the_nearest_trained_width_stands(two_widths):
    plan, records = two_widths
    for record in records:  # the last row is as large at width 8 as the others are at 32
        if record.trial["layer"]["row"] == "<script>" and record.trial["flow"]["width"] == 8:
            record.rows[0]["parameters"] = 10500
    found, table = cells((plan, records), "parameters")
    head = table.header[1]
    assert head == "digits and waveforms, bits/dim ↓, near 10,500 parameters [1]"
    assert found["conv1x1"][head].endswith("10,000 at width 32")
    assert found["my_layer & co"][head].endswith("11,000 at width 32")
    assert found["<script>"][head].endswith("10,500 at width 8"), "not its 12,000"
    assert "from 10,000 to 11,000, a factor of 1.10" in table.notes[0]


def model(row, parameters):
    return Model(row, 1, (1.0,), parameters, None, None, competes=True, estimated=False)


def test_the_common_count_is_that_whose_farthest_row_is_nearest():
    target, chosen = nearest_counts([model("a", 10), model("a", 100), model("b", 90), model("c", 120)])
    assert target == 100 and [one.parameters for one in chosen] == [100, 90, 120]


def test_the_front_is_what_nothing_beats():
    assert pareto.front([(3, 1.0), (1, 2.0), (2, 2.0), (1, 3.0), (4, 1.5)]) == [(1, 2.0), (3, 1.0)]


def test_pareto_panels_show_every_width_and_mark_what_does_not_compete(two_widths):
    plan, records = two_widths
    records[0].rows[0]["audit"] = "failed"
    figure = pareto.figures(Results.of(plan, records))["pareto"]
    assert [axes.get_xlabel() for axes in figure.axes] == ["parameters", "seconds of training"]
    points = [line for line in figure.axes[0].lines if line.get_marker() not in ("None", "_", "|", "")]
    assert [line.get_xdata()[0] for line in points] == [1000, 10000, 1100, 11000, 1200, 12000]
    assert [line.get_markerfacecolor() == "white" for line in points] == [True] + [False] * 5
    dashed = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    assert list(dashed[0].get_xdata()) == [1100, 10000], "the cheapest does not compete"
    for number, record in enumerate(records):
        record.environment["cpu"] = "One" if number % 6 < 3 else "Two"
    figure = pareto.figures(Results.of(plan, records))["pareto"]
    assert [axes.get_xlabel() for axes in figure.axes] == ["parameters"]


def test_columns_of_different_data_are_fields_of_their_own(density_run):
    plan, records = density_run
    found = fields(Results.of(plan, records))
    assert [(field.name, field.unit) for field in found] == [("digits", "bits_per_dim"), ("waveforms", "nats_per_dim")]
    assert [one.row for one in found[0].models] == list(ROWS) and len(found[0].models[0].values) == 3


def test_the_command_writes_a_table_for_each_term_and_the_next_one_takes_it_away(curved, write_run, capsys):
    folder = write_run(*curved)
    assert main(["report", str(folder), "--at", "steps", "--at", "width"]) == 0
    assert "At equal training steps" in capsys.readouterr().out
    assert "width 8" in (folder / "table-at-width.md").read_text()
    assert r"\toprule" in (folder / "table-at-steps.tex").read_text()
    assert "table-at-steps.md" not in write_report(folder).files and not (folder / "table-at-steps.md").exists()


def test_counts_and_times_have_no_equal_terms(parameters_run, write_run, capsys):
    folder = write_run(*parameters_run)
    assert main(["report", str(folder), "--at", "width"]) == 2
    assert "of kind parameters" in capsys.readouterr().err and not (folder / "table.md").exists()
