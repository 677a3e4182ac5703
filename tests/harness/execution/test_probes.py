"""`plan --probe`: each cell is probed once, and a probe that fails says why."""

from pathlib import Path

import pytest

import harness.execution.probes
from harness.cli.parser import main
from harness.core.errors import DataMissing
from harness.core.records import blank_record, write_record

SUITE = """\
suite: tiny
kind: density
title: A tiny suite
layers:
  conv1x1: {}
  butterfly: {options: {levels: 3}}
training: {learning_rate: 1e-3, steps: 1000, batch_size: 8, evaluate_every: 500}
tuning: {candidates: 3, space: {training.learning_rate: {low: 1.0e-3, high: 1.0e-2, scale: log}}}
profiles:
  quick:
    seeds: 2
    flow: {levels: 1, steps: 1, width: 4}
    datasets:
      digits: {}
      permuted: {data: digits, permute: 1}
"""
COST = {"setup": 1.0, "step": 0.01, "example": 0.0, "batches": 0.0, "round_trip": 0.0, "validation": 9, "test": 9}


@pytest.fixture
def suite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(SUITE)


@pytest.fixture
def probes(monkeypatch):
    """Replace the processes of probes by records of one cost; return the probed trials."""
    seen = []

    def run_trials(trials, run_options, slots, reporter, *, work):
        for trial in trials:
            record = blank_record(trial, "ok", None)
            record.curves = {name: [value] for name, value in (COST | {"memory": 3 << 28}).items()}
            if trial.layer.row == "butterfly" and trial.data.label == "permuted":
                record = blank_record(trial, "oom", "no memory left")
            write_record(run_options.out / "records", record)
        seen.extend(trials)

    monkeypatch.setattr("harness.execution.probes.run_trials", run_trials)
    monkeypatch.setattr("harness.execution.local.slots.usable_cores", lambda: 2)
    return seen


def plan(capsys, *options):
    assert main(["plan", "tiny.yaml", "--set", "threads=1", *options]) == 0
    return capsys.readouterr().out


def test_each_cell_is_probed_once(suite, probes, capsys):
    out = plan(capsys, "--probe")
    assert sorted((trial.data.label, trial.layer.row) for trial in probes) == [
        (column, row) for column in ("digits", "permuted") for row in ("butterfly", "conv1x1")
    ]
    assert {trial.kind for trial in probes} == {"density"}, "rather than one of its candidates"
    lines = [line.split() for line in out.splitlines() if line.startswith(("digits-", "permuted-"))]
    assert len(lines) == 4 * (3 + 2), "of 3 candidates and 2 seeds"
    times = {(line[2], line[3]): " ".join(line[-4:]) for line in lines}
    assert times["digits", "conv1x1"] == "11 s 768.0 MiB" and times["permuted", "butterfly"].endswith(" oom")
    # 3 cells of 5 trials of 1 + 1000 * 0.01 seconds
    assert "in about 82 s (from a probe, 2 at once, and 5 of unknown duration)" in out
    total = "in all about 3 min on 1 job, 82 s on 2 jobs, without 5 trials of unknown duration; a trial holds up to"
    assert f"{total} 768.0 MiB" in out
    assert out.count("ended with") == 1 and "the probe of permuted, butterfly ended with oom: no memory left" in out
    assert not Path("reports").exists()


def test_trials_with_an_estimate_or_a_result_are_not_probed(suite, probes, capsys):
    assert "?" in plan(capsys) and probes == []
    from harness.planning.settle import load_suite, settle

    recorded = [
        trial
        for trial in settle(load_suite("tiny.yaml"), "quick", "cpu").plan()[0].trials
        if trial.data.label == "digits"
    ]
    for trial in recorded:
        record = blank_record(trial, "ok", None)
        record.seconds = 5.0
        likelihood = {"validation" if trial.kind == "tuning" else "bits_per_dim": 2.0}
        row = {"unit": "bits_per_dim", "parameters": 3, "masked_free": 3, "audit": "passed"}
        record.rows = [row | likelihood]
        write_record(Path("reports/tiny/records"), record)
    assert plan(capsys, "--probe", "--only", "dataset=digits").count("in all about") == 0 and probes == []
    assert "from a probe" not in plan(capsys, "--probe", "--seeds", "3", "--only", "dataset=digits")
    assert probes == [], "a further seed is estimated from the others"


def test_a_probe_may_hold_the_memory_that_is_free(suite, probes, capsys, monkeypatch):
    limits = []
    replaced = harness.execution.probes.run_trials

    def run_trials(trials, run_options, *args, **keywords):
        limits.append(run_options.memory)
        replaced(trials, run_options, *args, **keywords)

    monkeypatch.setattr("harness.execution.probes.run_trials", run_trials)
    monkeypatch.setattr("harness.execution.probes.available_memory", lambda: 5 << 30)
    plan(capsys, "--probe")
    plan(capsys, "--probe", "--set", "memory=2GiB")
    assert limits == [5 << 30, 2 << 30]


def test_data_that_are_missing_are_said_and_not_probed(suite, probes, capsys, monkeypatch):
    from harness.datasets.digits import Digits

    def missing(self, store, options, new):
        raise DataMissing("digits: gone")

    monkeypatch.setattr(Digits, "check", missing)
    out = plan(capsys, "--probe", "--only", "layer=conv1x1")
    assert probes == [] and out.count("  data missing") == 10, "two cells of five trials"
    assert out.count("digits: gone") == 1 and "in all about" not in out


def test_probes_do_not_run_on_a_cluster(suite, probes, capsys):
    assert main(["plan", "tiny.yaml", "--probe", "--executor", "slurm"]) == 2
    assert "leave out --executor slurm" in capsys.readouterr().err


@pytest.mark.system
def test_a_probe_runs_in_processes_of_its_own(suite, capsys):
    Path("mine.py").write_text(
        "from layers.conv1x1 import Conv1x1\n\n\n"
        "class Exits(Conv1x1):\n"
        "    def forward(self, x):\n"
        "        import os\n        os._exit(3)\n"
    )
    text = SUITE.replace("  conv1x1: {}\n", "  conv1x1: {}\n  exits: {layer: 'mine.py:Exits'}\n")
    Path("tiny.yaml").write_text(text.replace("      permuted: {data: digits, permute: 1}\n", ""))
    out = plan(capsys, "--probe")
    assert "the probe of digits, exits ended with error: the process ended with exit code 3 and left no record" in out
    assert "in all about" in out and "without 5 trials of unknown duration" in out
    assert not Path("reports").exists()
