"""Successive halving: all candidates run for a part of the steps, the better half for all of them."""

import json
from collections import Counter

import pytest

from harness.cli.parser import main
from harness.core.records import read_record
from harness.execution.agenda import agenda, outlook, ready
from harness.kinds.density.candidate import run as run_candidate
from harness.kinds.density.figures.tuning import figures
from harness.kinds.density.tuning.choice import NoChoice, choose
from harness.kinds.density.tuning.strategy import strategy
from harness.planning.plan import Plan, plan_fault
from harness.planning.settle import load_suite, settle
from harness.reporting.compare.merge import merge
from harness.reporting.frame import Results
from harness.reporting.report import ReportedResults

HALVING = ("tuning.strategy=halving", "tuning.candidates=5", "tuning.steps=4")


@pytest.fixture
def plan(planned):
    return planned(*HALVING)


def of(plan, kind="tuning", row="conv1x1"):
    return [trial for trial in plan.trials if trial.kind == kind and trial.layer.row == row]


def short(plan, row="conv1x1"):
    return [trial for trial in of(plan, row=row) if trial.short]


def full(plan, row="conv1x1"):
    return [trial for trial in of(plan, row=row) if not trial.short]


def due(plan, folder, row="conv1x1"):
    """Return the numbers of the candidates of a layer that run to the end, by the records in a folder."""
    entries = [entry.trial for entry in agenda(plan, folder) if entry.trial.layer.row == row]
    return [trial.candidate for trial in entries if trial.kind == "tuning" and not trial.short]


def test_the_points_and_the_full_candidates_are_those_of_sobol(plan, planned):
    """So a folder that has either kind of run needs only the rest for the other."""
    sobol = planned(*HALVING[1:])
    assert strategy("halving").points(32, 106) == strategy("sobol").points(32, 106)
    for row in ("conv1x1", "butterfly"):
        assert full(plan, row) == of(sobol, row=row)
        assert [trial.layer for trial in short(plan, row)] == [trial.layer for trial in full(plan, row)]
        assert [trial.training.steps for trial in (*short(plan, row), *full(plan, row))] == [1] * 5 + [4] * 5
    assert len({trial.id for trial in plan.trials}) == len(plan.trials) == 24
    assert not {trial.id for trial in of(plan, "density")} & {trial.id for trial in of(sobol, "density")}
    assert plan_fault(plan) is None and Plan.model_validate_json(plan.model_dump_json()) == plan


def test_a_plan_lists_the_short_candidates_and_says_that_more_follow(plan, tmp_path, leave):
    first = agenda(plan, tmp_path)
    assert [entry.text() for entry in first] == ["to run"] * 10 + ["to run, after 5 trials or more"] * 4
    assert outlook(plan, first, lambda trials: 1)[1:] == ["a run does 14 trials or more"]
    assert [entry.trial.repeat for entry in first[:3:2]] == ["candidate 0, first 1 step", "candidate 1, first 1 step"]
    for trial in short(plan):
        leave(trial, 2.0 + trial.candidate)
    entries = agenda(plan, tmp_path)
    kept = [entry.trial.repeat for entry in entries if entry.trial in full(plan)]
    assert kept == ["candidate 0", "candidate 1", "candidate 2"]
    final = next(entry for entry in entries if entry.trial.kind == "density")
    assert final.text() == "to run, after 3 trials or more"


@pytest.mark.parametrize(
    ("outcomes", "kept"),
    [
        ((5.0, 1.0, 4.0, 2.0, 3.0), [1, 3, 4]),
        ((2.0, 2.0, 2.0, 2.0, 1.0), [0, 1, 4]),
        ((1.0, "diverged", 4.0, "failed", 3.0), [0, 2, 4]),
        (("error", "diverged", 4.0, "failed", "oom"), [2]),
        (("diverged",) * 5, []),
        ((1.0, 2.0, 3.0, 4.0, None), []),
        ((1.0, 2.0, 3.0, 4.0, "killed"), []),
    ],
    ids=["better half", "ties", "failures", "one left", "none left", "not complete", "interrupted"],
)
def test_validation_keeps_the_better_half_of_the_short_candidates(plan, leave, tmp_path, outcomes, kept):
    for trial, outcome in zip(short(plan), outcomes, strict=True):
        if outcome == "failed":
            leave(trial, 0.0, row={"audit": "failed", "audit_reason": "a reason"})
        elif outcome == "killed":
            leave(trial, status="killed", notes={"signal": "SIGKILL"})
        elif isinstance(outcome, str):
            leave(trial, status=outcome)
        elif outcome is not None:
            leave(trial, outcome)
    assert due(plan, tmp_path) == kept and due(plan, tmp_path, "butterfly") == []


@pytest.mark.parametrize(("number", "kept"), [(2, 1), (3, 2), (8, 4), (16, 8)])
def test_half_of_any_number_trains_to_the_end(planned, leave, tmp_path, number, kept):
    plan = planned("tuning.strategy=halving", f"tuning.candidates={number}")
    for trial in short(plan):
        leave(trial, 2.0 - trial.candidate / 100)
    assert due(plan, tmp_path) == list(range(number - kept, number))


def test_a_run_on_rungs_resumes_after_any_trial(plan, leave, tmp_path):
    """Each command runs the first trial that is ready, as if the one before had been interrupted after it."""
    ran = []
    while wave := ready(agenda(plan, tmp_path), set()):
        value = 3.0 - wave[0].candidate / 10 if wave[0].kind == "tuning" else 2.0
        leave(wave[0], value, row={"candidate": 4} if wave[0].kind == "density" else {})
        ran.append(wave[0])
    assert Counter((trial.kind, trial.layer.row) for trial in ran) == {
        ("tuning", "conv1x1"): 8,
        ("tuning", "butterfly"): 8,
        ("density", "conv1x1"): 2,
        ("density", "butterfly"): 2,
    }
    for row in ("conv1x1", "butterfly"):
        order = [trial for trial in ran if trial.layer.row == row]
        assert order == [*short(plan, row), *full(plan, row)[2:], *of(plan, "density", row)]
    assert {entry.text() for entry in agenda(plan, tmp_path)} == {"ok"}
    chosen = choose(ran[-1], tmp_path)
    assert (chosen.number, chosen.candidates) == (4, 5)


def test_a_short_candidate_is_never_chosen(plan, leave, tmp_path):
    """Its value is one of fewer steps: those of the last rung decide."""
    for trial in short(plan):
        leave(trial, 1.0 + trial.candidate)
    for trial, value in zip(full(plan)[:3], (9.0, 8.0, 7.0), strict=True):
        leave(trial, value)
    final = of(plan, "density")[0]
    assert choose(final, tmp_path).number == 2
    records = {path.stem: read_record(path) for path in (tmp_path / "records").iterdir()}
    assert final.choice(records) == 2


@pytest.mark.parametrize(
    ("early", "late", "status", "words"),
    [
        ("diverged", None, "diverged", "5 diverged"),
        ("ok", "diverged", "diverged", "3 diverged, 2 ended early"),
        ("ok", "error", "error", "3 error, 2 ended early"),
    ],
)
def test_without_a_candidate_that_trains_to_the_end_nothing_is_chosen(
    plan, leave, tmp_path, early, late, status, words
):
    for trial in short(plan):
        leave(trial, status=early)
    for trial in full(plan)[:3] if late else []:
        leave(trial, status=late)
    with pytest.raises(NoChoice, match=rf"no candidate of the tuning won \({words}\): a reason") as caught:
        choose(of(plan, "density")[0], tmp_path)
    assert caught.value.status == status


def test_a_short_candidate_that_runs_again_may_bring_others_to_the_end(plan, leave, tmp_path):
    first, *others = short(plan)
    leave(first, status="oom")
    for trial in (*others, *full(plan)[1:4]):
        leave(trial, 2.0 + trial.candidate)
    for trial in of(plan, "density"):
        leave(trial, row={"candidate": 1})
    assert due(plan, tmp_path) == [1, 2, 3]
    leave(first, 1.0)
    entries = [entry for entry in agenda(plan, tmp_path) if entry.trial.layer.row == "conv1x1"]
    assert due(plan, tmp_path) == [0, 1, 2] and ready(entries, set()) == [full(plan)[0]]
    leave(full(plan)[0], 1.0)
    entries = [entry for entry in agenda(plan, tmp_path) if entry.trial.layer.row == "conv1x1"]
    assert entries[-1].text() == "ok, stale: its tuning chose candidate 1 and now chooses 0"


def test_a_report_counts_candidates_and_not_their_trials(plan, leave, tmp_path):
    plan.save(tmp_path)
    for row in ("conv1x1", "butterfly"):
        for trial in short(plan, row):
            leave(trial, 3.0 - trial.candidate / 10, status="diverged" if trial.candidate == 0 else "ok")
        for trial in full(plan, row)[2:]:
            leave(trial, 2.0 - trial.candidate / 10)
        for trial in of(plan, "density", row):
            changes = dict(trial.tuning.candidates[4])
            leave(trial, row={"candidate": 4, "candidates": 5, "chosen": json.dumps(changes)})
    results = ReportedResults.read(tmp_path)
    table = next(table for table in results.report.tables if table.name == "tuned-choices")
    assert table.caption.startswith(
        "Settings that validation chose, by data set. 5 candidates (the worse half ended after a quarter of the steps) "
        "of each layer, seed 100, 4 training steps each; learning rate"
    )
    assert all("(1 of 5 diverged)" in cells[1] for cells in table.rows)
    figure = figures(results)["tuning"]
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [5, 5]
    assert figure.axes[0].lines[0].get_ydata()[-1] < 2.0, "the value of the last rung counts"
    assert "a candidate that ended early counts with its value at that step" in figure.get_supxlabel()
    again = tmp_path / "again"
    [merged] = merge([tmp_path], again)
    assert len(merged.records) == len(results.records) == 20 and not merged.conflicts


def test_each_repetition_halves_its_own_candidates(planned, leave, tmp_path):
    """Repetitions are outermost; within each the short candidates come first."""
    repetitions = "repetitions={number: 2, vary: [training, tuning]}"
    plan = planned("tuning.strategy=halving", "tuning.candidates=4", repetitions)
    first, second = ([trial for trial in short(plan) if trial.repetition == number] for number in (0, 1))
    assert [trial.id for trial in first] != [trial.id for trial in second] and len(first) == len(second) == 4
    assert first[0].repeat == "repetition 0, candidate 0, first 1 step"
    for trial in first:
        leave(trial, 1.0 + trial.candidate)
    for trial in second:
        leave(trial, 1.0 - trial.candidate)
    kept = [entry.trial for entry in agenda(plan, tmp_path) if entry.trial in full(plan)]
    assert [(trial.repetition, trial.candidate) for trial in kept] == [(0, 0), (0, 1), (1, 2), (1, 3)]
    order = [(trial.repetition, trial.kind == "density", getattr(trial, "short", None)) for trial in plan.trials]
    stages = [(False, True)] * 8 + [(False, False)] * 8 + [(True, None)] * 2
    assert order == [(number, *stage) for number in (0, 1) for stage in stages]
    plan.save(tmp_path)
    line = figures(Results.read(tmp_path))["tuning"].axes[0].lines[0]
    assert len(line.get_xdata()) == 4, "a mean over repetitions of as many candidates"


def test_a_short_candidate_is_not_audited_and_its_record_is_one_of_the_trial(plan, tmp_path):
    trial = short(plan)[0]
    record = run_candidate(trial, None, tmp_path, lambda done, text: None)
    assert record.status == "ok" and not record.audit and record.rows[0]["audit"] is None
    assert record.rows[0]["validation"] > 0 and trial.fault(record) is None
    assert "audit None is not one of" in full(plan)[0].fault(record)


@pytest.mark.system
def test_halving_runs_on_the_smoke_profile_and_reads_no_test_split(tmp_path, capsys):
    """A finished run has nothing left to do, and the same suite with all candidates needs only the others."""
    command = ["run", "which_layer", "--profile", "smoke", "--out", str(tmp_path), "--jobs", "1"]
    command += ["--only", "layer=conv1x1", "--set", "tuning.candidates=4", "--set", "tuning.steps=4"]
    assert main([*command, "--set", "tuning.strategy=halving"]) == 0
    folder = tmp_path / "which_layer"
    plan = Plan.load(folder)
    records = {path.stem: read_record(path) for path in (folder / "records").glob("*.json")}
    assert len(records) == 4 + 2 + 1
    early = [records[trial.id] for trial in short(plan)]
    kept = [trial for trial in full(plan) if trial.id in records]
    assert all(record.rows[0]["steps"] == 1 for record in early)
    assert all(records[trial.id].rows[0]["steps"] == 4 for trial in kept)
    for record in (*early, *(records[trial.id] for trial in kept)):
        assert not {"bits_per_dim", "median", "worst"} & {name for name, value in record.rows[0].items() if value}
    values = [record.rows[0]["validation"] for record in early]
    assert [trial.candidate for trial in kept] == sorted(sorted(range(4), key=values.__getitem__)[:2])
    (final,) = of(plan, "density")
    row = records[final.id].rows[0]
    assert row["candidates"] == 4
    assert row["candidate"] == min(kept, key=lambda trial: records[trial.id].rows[0]["validation"]).candidate
    capsys.readouterr()
    assert main([*command, "--set", "tuning.strategy=halving"]) == 0
    assert {path.stem for path in (folder / "records").glob("*.json")} == set(records)
    settings = ["tuning.candidates=4", "tuning.steps=4"]
    sobol = settle(load_suite("which_layer"), "smoke", "cpu", settings=settings).plan()[0]
    assert len({trial.id for trial in of(sobol)} & set(records)) == 2
