"""The state of every trial, and whether a run would execute it."""

import json
from dataclasses import replace

import pytest

from harness.core.checkpoint_files import CheckpointHeader, checkpoint_folder
from harness.core.records import blank_record, write_record
from harness.execution.agenda import AgendaEntry, Experience, agenda, counted, forget_settled, outlook
from harness.kinds.density.trial import DensityTrial

SOURCES = {"flows/glow.py": "aaa"}


@pytest.fixture
def run(density_run, tmp_path):
    """Return a plan of eighteen density trials without tuning and two runtime trials, and a folder without records."""
    plan = density_run[0]
    trials = tuple(trial.settled({}) if isinstance(trial, DensityTrial) else trial for trial in plan.trials)
    return plan.model_copy(update={"trials": trials}), tmp_path / "made_up"


def leave(folder, trial, status="ok", sources=SOURCES, seconds=100.0, **notes):
    record = blank_record(trial, status, None if status == "ok" else "a reason")
    value = "validation" if trial.kind == "tuning" else "bits_per_dim"
    row = {"unit": "bits_per_dim", "parameters": 1, "masked_free": 1, "audit": "passed", value: 1.0}
    rows = [row] if status == "ok" else []
    record = replace(record, environment={"sources": sources}, seconds=seconds, notes=notes, rows=rows)
    write_record(folder / "records", record)


def checkpoint(folder, trial, step, sources=SOURCES):
    place = checkpoint_folder(folder, trial.id)
    place.mkdir(parents=True)
    about = {"trial": trial.id, "step": step, "steps": 40, "seconds": 50.0, "interruptions": 0, "torch": "2.15"}
    header = CheckpointHeader(**about, sources=sources)
    (place / f"{step:09d}.ckpt").write_bytes(json.dumps(vars(header)).encode() + b"\nwhatever follows")


def states(plan, folder, **options):
    return {entry.trial.id: entry for entry in agenda(plan, folder, lambda trial: SOURCES, **options)}


def test_states_of_trials_and_the_options_that_run_them(run):
    plan, folder = run
    done, failed, shot, stale, cut, stale_cut, fresh = plan.trials[:7]
    leave(folder, done)
    leave(folder, failed, "oom")
    leave(folder, shot, "killed", signal="SIGKILL")
    leave(folder, stale, sources={"flows/glow.py": "bbb"})
    checkpoint(folder, cut, 10)
    checkpoint(folder, stale_cut, 30, {"flows/glow.py": "bbb"})
    checkpoint(folder, failed, 20)
    entries = states(plan, folder)
    assert {trial.id: entries[trial.id].text() for trial in plan.trials[:7]} == {
        done.id: "ok",
        failed.id: "failed: oom, from step 20",
        shot.id: "killed, runs again",
        stale.id: "ok, stale: flows/glow.py changed",
        cut.id: "to run, from step 10",
        stale_cut.id: "to run, from step 30, its checkpoint is stale: flows/glow.py changed",
        fresh.id: "to run",
    }
    of_option = [states(plan, folder, **options) for options in ({}, {"retry_failed": True}, {"stale": "rerun"})]
    runs = {trial.id: [entries[trial.id].runs for entries in of_option] for trial in plan.trials[:7]}
    assert runs[done.id] == [False] * 3 and runs[failed.id] == [False, True, False]
    assert runs[stale.id] == [False, False, True]
    assert all(runs[trial.id] == [True] * 3 for trial in (shot, cut, stale_cut, fresh))
    assert counted(list(entries.values())) == (
        "20 trials: 2 ok, 1 oom (failed before), 1 killed (runs again), 16 to run; 1 of them stale"
    )
    lines = outlook(plan, list(entries.values()), lambda trials: 2)
    assert lines[2] == "1 trial failed before, and only --retry-failed runs them again"
    assert lines[3].startswith("2 trials stale (flows/glow.py changed)")


def test_checkpoints_of_settled_trials_are_removed(run):
    """A trial killed after writing its record leaves a checkpoint; one of a trial that will run again stays."""
    plan, folder = run
    done, failed, stale, fresh = plan.trials[:4]
    leave(folder, done)
    leave(folder, failed, "oom")
    leave(folder, stale, sources={"flows/glow.py": "bbb"})
    for trial in (done, failed, stale, fresh):
        checkpoint(folder, trial, 10)
    forget_settled(list(states(plan, folder).values()), folder)
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {failed.id, stale.id, fresh.id}


def test_without_known_source_no_record_is_stale(run):
    plan, folder = run
    leave(folder, plan.trials[0], sources={})
    assert states(plan, folder)[plan.trials[0].id].text() == "ok", "a record of a version without digests"
    leave(folder, plan.trials[0], sources={"flows/glow.py": "bbb"})
    assert agenda(plan, folder)[0].stale == ()
    checkpoint(folder, plan.trials[1], 10)
    asked = []
    agenda(plan, folder, lambda trial: asked.append(trial.id) or SOURCES)
    assert asked == [plan.trials[0].id, plan.trials[1].id], "not of trials without a result"


def test_durations_are_estimated_from_the_most_similar_trials(run):
    plan, folder = run
    trials = {(t.data.label, t.layer.row, t.seed): t for t in plan.trials if t.kind == "density"}
    leave(folder, trials["digits", "conv1x1", 0], seconds=100.0)
    leave(folder, trials["digits", "conv1x1", 1], seconds=300.0)
    leave(folder, trials["digits", "<script>", 0], seconds=800.0)
    checkpoint(folder, trials["digits", "conv1x1", 2], 30)
    entries = states(plan, folder)
    assert entries[trials["digits", "conv1x1", 2].id].seconds == 50.0, "a quarter of the mean is left"
    assert entries[trials["digits", "<script>", 1].id].seconds == pytest.approx(800.0)
    assert entries[trials["digits", "my_layer & co", 0].id].seconds == pytest.approx(400.0), "the mean of its data set"
    assert entries[trials["waveforms", "conv1x1", 0].id].seconds is None, "no record of this data set"
    fields = trials["digits", "conv1x1", 0].model_dump()
    longer = DensityTrial.model_validate(fields | {"training": fields["training"] | {"steps": 400}})
    records = [replace(blank_record(trials["digits", "conv1x1", 0], "ok", None), seconds=100.0)]
    assert Experience(records).seconds(longer) == pytest.approx(1000.0), "in proportion to the training examples"
    audited = [replace(records[0], rows=[{"audit_seconds": 40.0}])]
    assert Experience(audited).seconds(longer) == pytest.approx(640.0), "the audit takes as long"
    assert Experience(audited).seconds(trials["digits", "conv1x1", 0]) == pytest.approx(100.0)
    assert Experience([replace(records[0], status="timeout")]).seconds(longer) is None


def test_durations_of_runtime_trials_add_up_and_others_run_in_parallel(run):
    plan, _ = run
    entries = [AgendaEntry(trial, "to run", seconds=60.0) for trial in plan.trials]
    _, line = outlook(plan, entries, lambda trials: 3)
    assert line == "a run does 20 trials, in about 8 min (from earlier trials, 3 at once)"
    entries[0] = replace(entries[0], seconds=None)
    assert outlook(plan, entries, lambda trials: 3)[1].endswith("3 at once, and 1 of unknown duration)")
