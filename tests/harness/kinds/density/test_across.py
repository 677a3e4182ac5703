"""Layers across the data sets of density reports: table, figure, answer, and the overview of several suites."""

import random

import pandas as pd
import pytest
from toys import grid, write_suite

from harness.cli.parser import main
from harness.core.records import write_record
from harness.core.settings import DataRef
from harness.kinds.density.across import across, across_frame, across_table, family_of
from harness.kinds.density.figures.critical_difference import figures
from harness.kinds.density.trial import DensityTrial
from harness.planning.settle import load_suite, settle
from harness.reporting.figures.figure_style import style
from harness.reporting.report import ReportedResults

SUITE = """
suite: {name}
kind: density
title: Made up
question: Which?
layers:
  emerging: {{options: {{kernel_size: 3}}}}
  woodbury: {{options: {{rank_channels: 1, rank_space: 1}}}}
  {control}
flow: {{levels: 1, steps: 1, width: 8}}
tuning: {{candidates: 2, steps: 2, seed: 100, space: {{training.learning_rate: [0.01, 0.02]}}}}
training: {{steps: 4, evaluate_every: 2, batch_size: 64}}
profiles:
  quick:
    seeds: 3
    datasets:
      {datasets}
"""
CONTROLS = (
    "conv1x1-twice: {layer: conv1x1, keep_mixer: true}",
    "fixed-permutation: {layer: fixed, options: {map: permutation}}",
    "entry-scale: {layer: scale}",
)
DATASETS = ("digits: {}", "permuted-digits: {data: digits, permute: per-seed}", "waveforms: {options: {length: 64}}")
FURTHER = tuple(f"waves-{length}: {{data: waveforms, options: {{length: {length}}}}}" for length in (32, 128, 256))

# By data set: those of waveforms are nats, a hundred times as far apart.
VALUES = {"emerging": 1.0, "woodbury": 1.2, "conv1x1-twice": 1.5, "fixed-permutation": 2.0, "entry-scale": 1.75}


def value_of(trial):
    """Return a likelihood in its unit, in the order of `VALUES` on images, with noise of a thousandth."""
    noise = random.Random(f"{trial.data.label}{trial.layer.row}{trial.seed}").uniform(-1e-3, 1e-3)
    return (VALUES[trial.layer.row] + noise) * (100 if trial.data.name == "waveforms" else 1)


@pytest.fixture
def run_of(recorded, tmp_path):
    """Return a function that makes the results of a suite; `value(trial)` is a likelihood, or None for a failure."""

    def make(value=value_of, datasets=DATASETS, controls=CONTROLS, name="made_up", folder=None):
        parts = {"control": "\n  ".join(controls), "datasets": "\n      ".join(datasets)}
        file = write_suite(tmp_path, SUITE.format(name=name, **parts))
        plan, trials = settle(load_suite(file), "quick", "cpu").plan()
        trials = [trial for trial in trials if isinstance(trial, DensityTrial)]
        records = []
        for trial in trials:
            unit = "nats_per_dim" if trial.data.name == "waveforms" else "bits_per_dim"
            likelihood = value(trial)
            failed = {"audit": "failed"} if likelihood is None else {}
            records.append(recorded(trial, likelihood or 1.0, unit=unit, **failed))
        plan = plan.limited(trials)
        if folder is not None:
            plan.save(folder)
            for record in records:
                write_record(folder / "records", record)
        return ReportedResults.of(plan, records)

    return make


def test_the_table_has_ranks_outcomes_and_shares(run_of):
    compared = across((run_of(),))
    assert list(compared.families) == ["images", "images without order", "sequences"]
    table = across_table(compared, "made_up-across")
    rows = grid(table)
    assert list(rows) == ["emerging", "woodbury", "conv1x1-twice", "entry-scale", "fixed-permutation"]
    emerging = rows["emerging"]
    assert emerging["average rank, all 3 ↓"] == emerging["average rank, sequences (1) ↓"] == "1.00"
    assert emerging["not behind, of 3 ↑"] == "3" and rows["woodbury"]["not behind, of 3 ↑"] == "0"
    assert emerging["wins, ties, losses, against conv1x1-twice"] == "3, 0, 0"
    assert rows["fixed-permutation"]["wins, ties, losses, against entry-scale"] == "0, 0, 3"
    share = emerging["share of the controls' distance, median [lowest, highest] ↑"]
    assert share == "+1.00 [+1.00, +1.00]", "(1.5 - 1.0) / (2.0 - 1.5), in nats as in bits"
    assert not table.detail and sum(span for _, span in table.groups) == len(table.header)
    assert "no pair could differ significantly" in " ".join(table.notes)
    assert "digits, permuted-digits are of one source" in " ".join(table.notes)


def test_the_unit_and_the_scale_of_a_data_set_change_nothing(run_of):
    def rescaled(trial):
        return value_of(trial) / (100 if trial.data.name == "waveforms" else 1)

    frames = [across_frame(across((run_of(value),))) for value in (value_of, rescaled)]
    assert list(frames[0]["rank"]) == list(frames[1]["rank"])
    assert list(frames[0]["share"]) == pytest.approx(list(frames[1]["share"]))
    assert set(frames[0]["unit"]) == {"bits_per_dim", "nats_per_dim"}


def test_a_difference_below_the_margin_is_a_tie_and_equal_controls_are_no_scale(run_of):
    def close(trial):
        return value_of(trial) if trial.layer.row != "woodbury" else VALUES["conv1x1-twice"] - 0.009 + trial.seed / 1e5

    compared = across((run_of(close, (*DATASETS[:2], "patches: {}")),))
    rows = grid(across_table(compared, "made_up-across"))
    assert rows["woodbury"]["wins, ties, losses, against conv1x1-twice"] == "0, 3, 0"

    def equal(trial):
        return value_of(trial) if trial.layer.row in ("emerging", "woodbury") else 1.5

    assert not across((run_of(equal, (*DATASETS[:2], "patches: {}")),)).distances


def test_layers_without_a_rank_columns_of_the_same_data_and_shares_without_controls_are_left_out(run_of):
    def failing(trial):
        lost = trial.layer.row == "entry-scale" and trial.data.label == "waveforms"
        return None if lost else value_of(trial)

    compared = across((run_of(failing),))
    assert compared.layers == ["emerging", "woodbury", "conv1x1-twice", "fixed-permutation"]
    assert compared.remarks[0] == "left out: entry-scale, not ranked on waveforms"
    assert len(compared.columns) == 3, "a layer is lost, not a data set with four of them"
    wide = "digits width 16: {data: digits, flow: {width: 16}}"
    assert across((run_of(datasets=(*DATASETS[:2], wide)),)) is None
    compared = across((run_of(datasets=(*DATASETS, wide)),))
    assert [column.label for column in compared.columns] == ["digits", "permuted-digits", "waveforms"]
    assert "left out: digits width 16, with the same data as digits" in compared.remarks
    compared = across((run_of(controls=("conv1x1: {}",), value=lambda trial: random.Random(trial.id).random()),))
    assert compared.together.effects.empty and compared.together.pairs is None and not compared.distances
    table = across_table(compared, "made_up-across")
    assert "pairs of layers are not tested" in " ".join(table.notes)
    assert not any("wins" in heading or "share" in heading for heading in table.header)


def test_the_answer_says_what_can_be_said_in_all_and_by_family(run_of):
    few = run_of(datasets=DATASETS[:2]).report
    assert len(few.answer.findings) == 2 and not any(table.name.endswith("-across") for table in few.tables)
    with style():
        assert figures(few.results) == {}

    report = run_of(datasets=(*DATASETS, *FURTHER)).report
    assert report.tables[1].name == "made_up-across"
    together, images, permuted, sequences = report.answer.findings[6:]
    assert together.subject == "all 6 data sets" and together.verdict == "layers differ"
    assert "emerging 1.0, woodbury 2.0" in together.text and "5 layers are equal has p < 0.001" in together.text
    assert "6 data sets cannot give a p below 0.031 in a signed-rank test, 0.31 after Holm's" in together.text
    assert images.verdict == permuted.verdict == "no test" and "no test below 3 data sets" in images.text
    assert sequences.subject == "sequences (4 data sets)" and "4 data sets cannot give a p below" in sequences.text


def test_the_figure_joins_what_is_not_shown_to_differ(run_of):
    with style():
        (name, figure), *others = figures(run_of()).items()
    assert name == "critical-difference" and not others
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert "emerging  1.00 " in texts and " 5.00  fixed-permutation" in texts
    bars = [line for line in figure.axes[0].lines if line.get_linewidth() == 3.0]
    assert [list(bar.get_xdata()) for bar in bars] == [[1, 2, 3, 4, 5]], "nothing can differ on three data sets"


CSV = {"file": "a.csv", "columns": 4}


@pytest.mark.parametrize(
    ("data", "unit", "family"),
    [
        (DataRef(label="a", name="digits"), "bits_per_dim", "images"),
        (DataRef(label="a", name="digits", permute="per-seed"), "bits_per_dim", "images without order"),
        (DataRef(label="a", name="digits", permute=0), "bits_per_dim", "images without order"),
        (DataRef(label="a", name="waveforms"), "nats_per_dim", "sequences"),
        (DataRef(label="a", name="csv", options=CSV), "nats_per_dim", "tables of numbers"),
        (DataRef(label="a", name="csv", options=CSV | {"length": 64}), "nats_per_dim", "sequences"),
        (DataRef(label="a", name="no_file.py:Data"), "nats_per_dim", "sequences"),
    ],
)
def test_the_family_of_data_is_that_of_its_shape_and_order(data, unit, family):
    assert family_of(data, unit) == family


def test_a_report_of_several_suites_has_an_overview(run_of, tmp_path, capsys, no_figures):
    places = {"one": DATASETS[:2], "two": (DATASETS[0], DATASETS[2])}
    for name, datasets in places.items():
        run_of(datasets=datasets, name=name, folder=tmp_path / "runs" / name)
    out = tmp_path / "out"
    code = main(["report", *(str(tmp_path / "runs" / name) for name in places), "--out", str(out)])
    assert code == 0 and "Across data sets" in capsys.readouterr().out
    names = {path.relative_to(out / "across").as_posix() for path in (out / "across").rglob("*") if path.is_file()}
    assert {"across.md", "across.tex", "across.csv", "figures/critical-difference.svg"} <= names
    frame = pd.read_csv(out / "across" / "across.csv")
    assert list(dict.fromkeys(frame["dataset"])) == ["one: digits", "permuted-digits", "waveforms"]
    text = (out / "across" / "across.md").read_text()
    assert "left out: two: digits, with the same data as one: digits" in text
    assert "Suites, with their profiles: one (quick), two (quick)" in text

    assert main(["report", str(tmp_path / "runs" / "one"), "--out", str(tmp_path / "alone")]) == 0
    assert not (tmp_path / "alone" / "across").exists()
