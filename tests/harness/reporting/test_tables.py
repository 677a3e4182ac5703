import re

import pytest
from toys import grid, tables_of

from harness.core.records import blank_record
from harness.kinds.density.likelihoods import ranking
from harness.reporting.report import ReportedResults
from harness.reporting.tables.rendering import latex, markdown, plain


def test_bold_cells_stand_out_in_each_form(many_seeds):
    table = tables_of(many_seeds(8))[0]
    assert table.bold == {(0, 1), (1, 2), (2, 2)}, "on waveforms the last two rows do not differ"
    assert f"{table.rows[0][1]} *  " in plain(table) and plain(table).endswith("\n* bold")
    assert "| **2.0" in markdown(table) and r"& \textbf{2.0" in latex(table)
    assert not tables_of(many_seeds(7))[0].bold


def test_published_numbers_stand_beside_the_measured_ones_under_one_heading(density_run):
    plan, records = density_run
    text = latex(tables_of((plan.model_copy(update={"profile": "paper"}), records))[0])
    assert r"& \multicolumn{2}{c}{digits, bits/dim $\downarrow$} &  \\" in text and r"\cmidrule(lr){2-3}" in text
    assert "& measured & published &" in re.sub(" +", " ", text)


def test_data_sets_that_share_counts_and_shapes_share_columns(density_run, replanned):
    for record in density_run[1][:18]:
        record.rows[0]["parameters"] = 7
    cost = tables_of(replanned(density_run, lambda trial: {"shape": (4, 32)} if trial.kind == "runtime" else {}))[3]
    assert cost.header == ("layer", "parameters", "forward, ms", "inverse, ms")


def test_data_sets_with_different_widths_have_separate_tables(parameters_run, replanned):
    """Each table shows the widths of its data set and the published counts of its width."""
    values = {"conv1x1": {"width": 64, "mimic": 6400, "other": 1600}}
    published = parameters_run[0].published.model_copy(update={"values": values, "widths": {"other": 16}})
    changes = {"columns": ("mimic", "other"), "published": published}
    run = replanned(parameters_run, lambda trial: {"label": "other"} if trial.flow.width == 16 else {}, **changes)
    tables = tables_of(run)
    extra, mimic = (grid(table)["conv1x1"] for table in tables)
    assert [table.name.rpartition("-")[2] for table in tables] == ["other", "mimic"]
    assert [name for name in extra if name.startswith("width")] == ["width 16", "width 16, unmasked"]
    assert [name for name in mimic if name.startswith("width")] == ["width 64", "width 64, unmasked"]
    assert (mimic["published"], mimic["at width"], mimic["equal"]) == ("6,400", "64", "yes")
    assert (extra["published"], extra["at width"], extra["equal"]) == ("1,600", "16", "yes")


def test_times_say_whether_they_are_of_kernels_or_of_plain_pytorch(runtime_run, density_run):
    plan, records = runtime_run
    for record in records:
        record.environment = {"backend": "cpp", "kernels": {"build": "b"}}
        for row in record.rows:
            row["backend"] = "cpp" if row["layer"] == "conv1x1" else "torch"
    records[0].environment = {"backend": "torch", "kernels": {"reason": "no compiler"}}
    assert r"\P{}" in latex(tables_of((plan, records))[0])
    records[0].environment["kernels"]["reason"] = "no layer asked for a kernel"
    assert "¶" not in markdown(tables_of((plan, records))[0])
    for record in density_run[1][-2:]:
        record.environment = {"backend": "torch", "kernels": {"reason": "no compiler"}}
    assert grid(tables_of(density_run)[3])["conv1x1"]["forward, ms, digits"].endswith(" ¶")


@pytest.mark.parametrize(
    ("patience", "best", "stopped", "improving"),
    [
        (None, 40, False, True),
        (None, 30, False, False),
        (2, 40, False, True),
        (2, 30, False, True),  # one evaluation without improvement, and two would have stopped it
        (2, 20, False, False),  # patience ran out with the last step
        (4, 20, True, False),
        (2, None, None, False),
    ],
)
def test_a_row_that_still_improved_at_its_bound_is_marked(many_seeds, replanned, patience, best, stopped, improving):
    training = {"training.patience": patience, "training.evaluate_every": 10}
    plan, records = replanned(many_seeds(3), lambda trial: training)
    for record in records[:12:6]:  # two of three seeds
        record.rows[0] |= {"best_step": best, "stopped_early": stopped}
    table = tables_of((plan, records))[0]
    assert f"up to 40 training steps of batch 16, patience {patience};" in table.caption or patience is None
    assert table.rows[0][1] == "2.013 [2.000, 2.030]" + " ‡" * improving
    assert sum("‡" in cell for row in table.rows for cell in row) == improving
    assert table.notes[0].startswith("‡ still improving") == (r"$\ddagger$" in latex(table)) == improving


@pytest.mark.parametrize(
    ("status", "failed", "ranked"),
    [("diverged", 1, True), ("oom", 4, True), ("diverged", 5, False), ("killed", 1, False), ("unsupported", 1, False)],
)
def test_a_failed_trial_counts_as_the_worst_of_its_row_and_unranks_nothing(many_seeds, status, failed, ranked):
    plan, records = many_seeds(8)
    trials = [trial for trial in plan.trials if (trial.layer.row, trial.data.label) == ("conv1x1", "digits")]
    blank = {trial.id: blank_record(trial, status, "why") for trial in trials[:failed]}
    others = {trial.id for trial in trials[failed:]}
    kept = [record.rows[0]["bits_per_dim"] for record in records if record.id in others]
    records = [blank.get(record.id, record) for record in records]
    results = ReportedResults.of(plan, records)
    rows = ranking(results, "digits").rows
    assert ("conv1x1" in rows) == ranked and len(rows) == 2 + ranked
    words = f"ranked with the worst of the others, {max(kept):.3f}, in its place"
    assert any(words in note for note in results.report.tables[0].notes) == ranked
    remarks = dict(results.report.answer.remarks)
    if ranked:
        assert sorted(rows["conv1x1"].values()) == sorted([*kept, *[max(kept)] * failed])
        assert remarks["Failures"][0].endswith(f": conv1x1 on digits ({failed} of 8).")
    else:
        assert "Failures" not in remarks
        assert any(f"conv1x1 on digits ({status})" in text for text in remarks["Not said"])
