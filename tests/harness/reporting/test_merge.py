"""Records of several machines joined: nothing twice, nothing contradictory unsaid, no times pooled."""

import copy
from dataclasses import replace

import pandas as pd
import pytest

from harness.cli.parser import main
from harness.core.errors import UserError
from harness.core.records import blank_record, read_record, write_record
from harness.kinds.density.trial import DensityTrial
from harness.planning.plan import Plan
from harness.reporting.compare.merge import merge
from harness.reporting.frame import Results

HERE = {"cpu": "Processor A", "cores": 8}
THERE = {"cpu": "Processor B", "cores": 64}


@pytest.fixture
def machines(density_run, tmp_path):
    """Lay a run out as the folder of one machine."""
    plan, records = density_run

    def lay_out(name, keep=lambda record: True, environment=HERE, change=None, made=plan):
        folder = tmp_path / name / plan.suite
        made.save(folder)
        for record in copy.deepcopy(records):
            if keep(record):
                record.environment = dict(environment)
                if change is not None:
                    change(record)
                write_record(folder / "records", record)
        return folder

    return lay_out


def density(record):
    return record.trial["kind"] == "density"


def test_two_halves_are_a_whole(machines, tmp_path, density_run, no_figures):
    plan, _ = density_run
    one = machines("one", lambda r: not density(r) or r.trial["seed"] == 0)
    two = machines("two", lambda r: density(r) and r.trial["seed"] > 0, THERE)
    whole = machines("whole")
    [merged] = merge([one, two], tmp_path / "merged")
    assert merged.taken == len(plan.trials) and not merged.conflicts and not merged.remarks
    assert main(["report", str(one), str(two), "--out", str(tmp_path / "merged")]) == 0
    assert main(["report", str(whole)]) == 0
    table = (merged.folder / "table.md").read_text()
    # The same values; only the machines differ.
    assert table.replace("Processor A, Processor B", "Processor A") == (whole / "table.md").read_text()
    assert main(["report", str(merged.folder)]) == 0, "a merge is a run folder like any other"


def test_plans_of_different_seeds_become_one(machines, density_run, tmp_path):
    plan, _ = density_run
    folders = []
    for seed in (2, 0):
        trials = tuple(t for t in plan.trials if not isinstance(t, DensityTrial) or t.seed == seed)
        part = plan.model_copy(update={"seeds": (seed,), "trials": trials})
        folders.append(machines(f"seed{seed}", lambda r, seed=seed: r.trial.get("seed", seed) == seed, made=part))
    [merged] = merge(folders, tmp_path / "merged")
    joined = Plan.load(merged.folder)
    assert joined.seeds == (0, 2)
    expected = [t.id for t in plan.trials if not isinstance(t, DensityTrial) or t.seed != 1]
    assert [trial.id for trial in joined.trials] == expected, "in the order of a run"


def test_processes_of_one_point_stand_beside_each_other(runtime_run, tmp_path):
    plan, records = runtime_run
    trials = [trial for trial in plan.trials for _ in range(2)]
    seconds = [trial.model_copy(update={"process": number % 2}) for number, trial in enumerate(trials)]
    seconds = [type(one)(**{name: getattr(one, name) for name in type(one).model_fields}) for one in seconds]
    folders = []
    for process in (0, 1):
        folder = tmp_path / f"process{process}" / plan.suite
        own = tuple(trial for trial in seconds if trial.process == process)
        plan.model_copy(update={"trials": own}).save(folder)
        for trial, record in zip(own, records, strict=True):
            of_this = replace(record, id=trial.id, trial=trial.model_dump(mode="json"), environment=dict(HERE))
            write_record(folder / "records", of_this)
        folders.append(folder)
    [merged] = merge(folders, tmp_path / "merged")
    assert merged.taken == len(seconds) and not merged.conflicts
    assert [trial.process for trial in Plan.load(merged.folder).trials] == [0] * len(records) + [1] * len(records)


def test_a_contradiction_is_reported_and_the_first_is_kept(machines, tmp_path, capsys, density_run, no_figures):
    plan, _ = density_run
    name = plan.trials[0].id

    def change(record):
        if record.id == name:
            record.rows[0]["bits_per_dim"] = 9.0
        if density(record):
            record.rows[0]["train_seconds"] = 77.0  # times are never twice the same, and contradict nothing

    one, two = machines("one", density), machines("two", density, THERE, change)
    assert main(["report", str(one), str(two), "--out", str(tmp_path / "merged")]) == 1
    out = capsys.readouterr().out
    assert out.count("conflict: ") == 1
    assert f"conflict: {name}: bits_per_dim is 2.0 and 9.0 in {one}, which is taken, and in {two}" in out
    record = read_record(tmp_path / "merged" / plan.suite / "records" / f"{name}.json")
    assert record.rows[0]["bits_per_dim"] == 2.0
    table = (tmp_path / "merged" / plan.suite / "table.md").read_text()
    assert f"Conflict: {name}: two records differ: bits_per_dim is 2.0 and 9.0, the latter on Processor B" in table


def test_a_good_record_goes_before_a_failed_one(machines, density_run, tmp_path):
    plan, _ = density_run

    def fail(record):
        if record.id == plan.trials[0].id:
            record.status, record.reason, record.rows = "oom", "no memory", []

    [merged] = merge([machines("one", density, change=fail), machines("two", density)], tmp_path / "merged")
    assert read_record(merged.folder / "records" / f"{plan.trials[0].id}.json").status == "ok"
    [remark] = merged.remarks
    assert "ok in" in remark and "oom in" in remark and not merged.conflicts


def test_times_of_different_machines_are_never_pooled(machines, density_run, tmp_path):
    """The machine with most of them is reported; of equals, the first."""
    plan, _ = density_run
    timed = [trial.id for trial in plan.trials if trial.kind == "runtime"]
    one = machines("one", lambda r: r.id == timed[0], HERE)
    two = machines("two", lambda r: r.id in timed, THERE)
    [merged] = merge([one, two], tmp_path / "merged")
    records = [read_record(path) for path in sorted((merged.folder / "records").glob("*.json"))]
    assert {record.environment["cpu"] for record in records} == {"Processor B"} and len(records) == 2
    assert not merged.conflicts
    assert merged.remarks == (
        f"{timed[0]} of {one} is left out: measured on another machine (Processor A, 8 cores, not Processor B, 64 "
        "cores): times of different machines are never pooled",
    )


def test_nor_within_one_folder(density_run):
    """A run that went on elsewhere, on a shared disk."""
    plan, records = density_run
    timed = [record for record in records if record.trial["kind"] == "runtime"]
    for record, environment in zip(timed, (HERE, THERE), strict=True):
        record.environment = environment
    frame = Results.of(plan, records).of_kind("runtime")
    here, elsewhere = (frame[frame["status"] == status].iloc[-1] for status in ("ok", "elsewhere"))
    assert here["machine"] == "Processor A" and here["median_ms"] > 0
    assert pd.isna(elsewhere["median_ms"]) and "never pooled" in elsewhere["reason"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"device": "cuda"}, "is of device cpu, .* of cuda: not one table"),
        ({"profile": "paper"}, "is of profile quick, .* of paper: not one table"),
    ],
)
def test_what_is_not_one_table_is_refused(machines, density_run, tmp_path, change, words):
    plan, _ = density_run
    one, two = machines("one", density), machines("two", density, made=plan.model_copy(update=change))
    with pytest.raises(UserError, match=words):
        merge([one, two], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_one_cell_under_two_settings_is_refused(machines, density_run, tmp_path):
    plan, _ = density_run
    first = plan.trials[0]
    fields = {name: getattr(first, name) for name in type(first).model_fields}
    other = DensityTrial(**fields | {"training": first.training.model_copy(update={"steps": 7})})
    changed = plan.model_copy(update={"trials": (other, *plan.trials[1:])})
    one, two = machines("one", density), machines("two", density, made=changed)
    with pytest.raises(UserError, match=r"differ in training.steps \(40 and 7\)"):
        merge([one, two], tmp_path / "merged")


def test_a_merge_overwrites_no_run(machines, tmp_path, density_run):
    plan, _ = density_run
    one, two = machines("one", density), machines("two", density)
    with pytest.raises(UserError, match="is one of the folders to be merged"):
        merge([one, two], one.parent)
    with pytest.raises(UserError, match="holds a run, not a merge"):
        merge([one, two], machines("three").parent)
    merge([one, two], tmp_path / "merged")
    stray = blank_record(plan.trials[-1], "ok", None)
    write_record(tmp_path / "merged" / plan.suite / "records", stray)
    [merged] = merge([one, two], tmp_path / "merged")
    assert not (merged.folder / "records" / f"{stray.id}.json").exists(), "made anew of its folders alone"


def test_a_damaged_record_is_named(machines, density_run, tmp_path):
    plan, _ = density_run
    one, two = machines("one", density), machines("two", density)
    (two / "records" / f"{plan.trials[0].id}.json").write_text("{")
    with pytest.raises(UserError, match="not a readable record"):
        merge([one, two], tmp_path / "merged")
