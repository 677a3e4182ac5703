"""Uncertainty in the table of likelihoods: seeds, standard errors over test examples, and trainings cut off."""

import pytest

from harness.core.records import blank_record
from harness.kinds.density.likelihoods import ranking
from harness.reporting.report import ReportedResults
from harness.reporting.tables.rendering import latex

DIGITS, WAVEFORMS = "digits, bits/dim ↓", "waveforms, nats/dim ↓"

CHOSEN = (
    "chosen learning rates: digits: 0.01 (conv1x1, my_layer & co, <script>); waveforms: 0.01 (conv1x1, my_layer & co, "
    "<script>)"
)


def made(run):
    return ReportedResults.of(*run).report.tables[0]


def cell(table, row, column):
    return next(cells for cells in table.rows if cells[0] == row)[table.header.index(column)]


def test_data_sets_of_different_numbers_of_seeds_have_their_own_captions(many_seeds):
    plan, records = many_seeds(8)
    kept = tuple(trial for trial in plan.trials if trial.data.label == "digits" or trial.seed < 3)
    caption = made((plan.model_copy(update={"trials": kept}), records)).caption
    assert "mean [95 % bootstrap interval] of 8 seeds on digits; mean [lowest, highest] of 3 seeds" in caption


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
    table = made((plan, records))
    assert f"up to 40 training steps of batch 16, patience {patience};" in table.caption or patience is None
    assert cell(table, "conv1x1", DIGITS) == "2.013 [2.000, 2.030]" + " ‡" * improving
    assert sum("‡" in cell for row in table.rows for cell in row) == improving
    remark = "‡ still improving: training reached its bound of 40 steps before validation stopped improving"
    assert table.notes == (*(remark,) * improving, CHOSEN) and (r"$\ddagger$" in latex(table)) == improving


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
