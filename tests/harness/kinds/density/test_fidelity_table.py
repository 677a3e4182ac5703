"""The table of samples against real images: a column per measure, extractor and count; notes for missing values."""

import pytest

from harness.core.errors import SuiteError
from harness.core.settings import SampleSettings
from harness.kinds.density.tables.fidelity import fidelity_table
from harness.planning.settle import load_suite, settle
from harness.reporting.frame import Results
from harness.reporting.report import ReportedResults
from harness.reporting.tables.rendering import latex, markdown

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


def test_every_measure_has_its_column_and_its_source(asked):
    plan, records = asked()
    table = fidelity(plan, records)
    assert table.header == ("layer", "digits, FID ↓", "digits, KID ↓", "digits, precision ↑", "digits, recall ↑")
    first = table.rows[0]
    assert first[1].startswith("11.0 [10.") and first[2:] == (
        "0.0100 [0.0100, 0.0100] (0.0020)",
        "0.500 [0.500, 0.500]",
        "0.250 [0.250, 0.250]",
    )
    assert "features of toy-net" in table.caption and "bias FID upward" in table.caption and "256" in table.caption
    assert table.notes == ("digits: samples and 250 of 250 test images; features of toy-net",)
    assert r"FID $\downarrow$" in latex(table) and r"recall $\uparrow$" in latex(table)
    line = Results.of(plan, records).table.iloc[0]
    assert (line.fid, line.kid, line.kid_sd, line.precision, line.recall) == (10.0, 0.01, 0.002, 0.5, 0.25)
    assert (line.samples, line.extractor) == (250, "toy-net")


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


def test_failed_trials_and_lost_samples_are_noted(asked):
    plan, records = asked()
    sampled = [record for record in records if "fidelity" in record.notes]
    sampled[0].notes["fidelity_lost"] = "3 of 250 samples are not finite"
    sampled[1].status, sampled[1].reason, sampled[1].rows = "diverged", "loss is nan", []
    for record in sampled[2::3]:
        record.status, record.reason, record.rows = "oom", "too large", []
    rows = fidelity(plan, records).rows
    assert rows[0][1].endswith("[1]") and rows[1][1].endswith("(2 of 3 seeds) [2]") and rows[2][1] == "oom [3]"
    assert fidelity(plan, records).notes[:3] == (
        "[1] conv1x1 on digits, seed 0: 3 of 250 samples are not finite",
        "[2] my_layer & co on digits: diverged: loss is nan",
        "[3] <script> on digits: oom: too large",
    )
    assert fidelity_table(Results.of(plan, [])) is None


@pytest.mark.parametrize("other", [{"count": 256, "extractor": "other-net"}, {"count": 128, "extractor": "toy-net"}])
def test_other_extractors_and_counts_are_never_in_one_column(other, asked):
    usual = {"count": 256, "extractor": "toy-net"}
    plan, records = asked(lambda trial: SampleSettings.model_validate(other if trial.layer.row == "conv1x1" else usual))
    table = fidelity(plan, records)
    headings = [f"digits ({settings['count']} in {settings['extractor']})" for settings in (other, usual)]
    assert [head for head in table.header if "FID" in head] == [f"{heading}, FID ↓" for heading in headings]
    assert [[row[column][:2] for row in table.rows] for column in (1, 5)] == [["11", "–", "–"], ["–", "11", "11"]]
    assert ("do not compare" in table.caption) == (other["extractor"] != "toy-net")


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


@pytest.mark.parametrize("count", ["9", "100001", "2.5", "true"])
def test_an_invalid_count_is_refused(count, load):
    with pytest.raises(SuiteError, match="count"):
        load(SUITE.replace("64", count).replace(", WAVES", ""))
