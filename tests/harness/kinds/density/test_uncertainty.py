"""Trainings that were cut off are marked in the table of likelihoods."""

import pytest
from toys import tables_of

from harness.core.records import blank_record
from harness.kinds.density.likelihoods import ranking
from harness.reporting.report import ReportedResults
from harness.reporting.tables.rendering import latex


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
        assert "Failures" not in remarks and any(
            f"conv1x1 on digits ({status})" in text for text in remarks["Not said"]
        )
