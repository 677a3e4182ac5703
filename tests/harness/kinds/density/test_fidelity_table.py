"""The table of samples against real images: a column per measure, extractor and count; notes for missing values."""

import pytest

from harness.core.errors import SuiteError
from harness.core.settings import SampleSettings
from harness.kinds.density.tables.fidelity import fidelity_table
from harness.planning.settle import load_suite, settle
from harness.reporting.report import ReportedResults
from harness.reporting.tables.rendering import markdown

MISSING_WEIGHTS = "no FID, KID, precision and recall: Inception's weights are missing"


@pytest.fixture
def asked(density_run, replanned):
    """Return a function that makes the density run with measures of samples of digits; FID is 10 + seed."""

    def make(settings_of=lambda trial: SampleSettings(count=256, extractor="toy-net")):
        def change(trial):
            digits = trial.kind == "density" and trial.data.label == "digits"
            return {"training.samples": settings_of(trial).model_dump()} if digits else {}

        plan, records = replanned(density_run, change)
        for record in records:
            if samples := record.trial.get("training", {}).get("samples"):
                extractor = samples["extractor"]
                record.rows[0] |= {"kid": 0.01, "kid_sd": 0.002, "precision": 0.5, "recall": 0.25}
                record.rows[0] |= {"fid": 10.0 + record.trial["seed"], "samples": 250, "extractor": extractor}
                record.notes["fidelity"] = f"samples and 250 of 250 test images; features of {extractor}"
        return plan, records

    return make


def fidelity(plan, records):
    results = ReportedResults.of(plan, records)
    table = fidelity_table(results)
    assert table in results.report.tables
    return table


def test_a_suite_without_samples_has_no_fidelity_table(density_run):
    plan, records = density_run
    results = ReportedResults.of(plan, records)
    assert fidelity_table(results) is None
    assert not any("FID" in markdown(table) for table in results.report.tables)


def test_without_weights_of_the_extractor_cells_are_empty_and_without_a_number_there_is_no_table(asked):
    plan, records = asked()
    sampled = [record for record in records if "fidelity" in record.notes]
    for record in sampled:
        if record.trial["layer"]["row"] != "conv1x1":
            lose_measures(record)
    table = fidelity(plan, records)
    assert table.rows[0][1].startswith("11.0 ")
    assert [row[1:] for row in table.rows[1:]] == [("– [1]", "–", "–", "–")] * 2
    assert table.notes[0] == f"[1] {MISSING_WEIGHTS}"
    assert MISSING_WEIGHTS not in ReportedResults.of(plan, records).report.tables[0].notes
    for record in sampled:
        lose_measures(record)
    results = ReportedResults.of(plan, records)
    assert fidelity_table(results) is None
    assert results.report.tables[0].notes.count(MISSING_WEIGHTS) == 1, "the first table says why"


def lose_measures(record):
    record.rows[0] |= dict.fromkeys(("fid", "kid", "kid_sd", "precision", "recall", "samples"))
    record.notes["fidelity"] = MISSING_WEIGHTS


SUITE = """
suite: compared
kind: density
title: Compared
layers: {conv1x1: {}}
profiles:
  quick:
    training: {samples: {count: 64}}
    datasets: {digits: {}, WAVES}
"""


@pytest.fixture
def load(tmp_path):
    """Return a function that loads a suite from its text."""

    def load(text):
        path = tmp_path / "compared.yaml"
        path.write_text(text)
        return load_suite(path)

    return load


def test_samples_of_sequences_are_refused_at_their_setting(load):
    with pytest.raises(SuiteError, match=r":9:\d+: waveforms: training.samples compares images"):
        load(SUITE.replace("WAVES", "waveforms: {}"))
    suite = load(SUITE.replace("WAVES", "waveforms: {training: {samples: null}}"))
    plan = settle(suite, "quick", "cpu", settings=["datasets.digits.training.samples.count=32"]).plan()[0]
    assert [trial.training.samples for trial in plan.trials] == [SampleSettings(count=32), None]
    with pytest.raises(SuiteError, match=r"--set training.samples.count=32: waveforms"):
        settle(suite, "quick", "cpu", settings=["training.samples.count=32"]).plan()
