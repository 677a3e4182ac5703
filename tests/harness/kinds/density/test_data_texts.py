"""Remarks below the table of likelihoods on the data that trials have read."""

from dataclasses import replace

import pytest

from harness.core.records import blank_record
from harness.kinds.density.trial import DensityTrial
from harness.reporting.report import ReportedResults


@pytest.fixture
def on_splits(density_run):
    """Return a function that gives the trials on digits a new split by their seed, and their records the data of it."""
    plan, records = density_run

    def drawn(split_of):
        trials, made = [], []
        for trial, record in zip(plan.trials, records, strict=True):
            if isinstance(trial, DensityTrial) and trial.data.label == "digits":
                split = split_of(trial.seed)
                content = trial.model_dump(mode="json")
                content["data"] |= {} if split is None else {"split": split}
                trial = DensityTrial.model_validate(content)
                notes = {"data": f"digits, split {split}", "splits": f"{100 + trial.seed} train"}
                record = replace(blank_record(trial, "ok", None), rows=record.rows, notes=notes, audit=record.audit)
            trials.append(trial)
            made.append(record)
        table = ReportedResults.of(plan.model_copy(update={"trials": tuple(trials)}), made).report.tables[0]
        return [note for note in table.notes if "digits, split" in note]

    return drawn


def test_one_split_of_many_is_described(on_splits):
    assert on_splits(lambda seed: seed + 5) == [
        "digits: digits, split 5; 100 train; and 2 other splits of the same events"
    ]
    assert on_splits(lambda seed: 5 + (seed == 2)) == [
        "digits: digits, split 5; 100 train; and 1 other split of the same events",
        "digits: digits, split 5; 101 train; and 1 other split of the same events",
    ]


def test_other_texts_of_the_same_split_stay(on_splits):
    assert on_splits(lambda seed: None) == [f"digits: digits, split None; {n} train" for n in (100, 101, 102)]
