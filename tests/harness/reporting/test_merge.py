"""Merging records of several machines: no duplicates, every contradiction reported, no times pooled."""

import copy
import json
from dataclasses import replace

import pandas as pd
import pytest
from toys import ROWS

from harness.cli.parser import main
from harness.core.archive import archive_bytes
from harness.core.errors import UserError
from harness.core.records import blank_record, read_record, write_record
from harness.kinds.density.trial import DensityTrial
from harness.planning.plan import Plan
from harness.reporting.compare.merge import join_plans, merge
from harness.reporting.frame import Results

HERE = {"cpu": "Processor A", "cores": 8}
THERE = {"cpu": "Processor B", "cores": 64}


@pytest.fixture
def machines(density_run, tmp_path):
    """Return a function that writes the run as the folder of one machine."""
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


def test_two_halves_of_a_run_merge_into_the_whole(machines, tmp_path, density_run, no_figures):
    plan, _ = density_run
    first = machines("one", lambda r: not density(r) or r.trial["seed"] == 0)
    second = machines("two", lambda r: density(r) and r.trial["seed"] > 0, THERE)
    whole = machines("whole")
    [merged] = merge([first, second], tmp_path / "merged")
    assert len(merged.records) == len(plan.trials) and not merged.conflicts and not merged.remarks
    for origin in (first, second):
        for path in (origin / "records").iterdir():
            assert read_record(merged.folder / "records" / path.name) == read_record(path)
    assert main(["report", str(first), str(second), "--out", str(tmp_path / "merged")]) == 0
    assert main(["report", str(whole)]) == 0
    table = (merged.folder / "table.md").read_text()
    # The values are equal; only the machines differ.
    assert table.replace("Processor A, Processor B", "Processor A") == (whole / "table.md").read_text()
    assert main(["report", str(merged.folder)]) == 0, "a merged folder can be reported like a run"


def test_plans_of_different_seeds_are_merged(machines, density_run, tmp_path):
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


def test_plans_of_different_rows_are_merged(parameters_run, tmp_path):
    plan, _ = parameters_run
    values = plan.published.values | {"NICE": {"mimic": 7}}
    published = plan.published.model_copy(update={"values": values})
    plan = plan.model_copy(update={"published": published, "command": "a && b"})
    parts = {}
    for command, rows in (("a", plan.rows[:1]), ("b", plan.rows[1:])):
        part = plan.limited([trial for trial in plan.trials if trial.layer.row in rows])
        parts[tmp_path / command] = part.model_copy(update={"command": command})
    assert list(parts[tmp_path / "b"].published.values) == [plan.rows[1], "NICE"], "rows of the other part are left out"
    assert join_plans(parts) == plan


def test_processes_of_one_point_are_kept(runtime_run, replanned, write_run, tmp_path):
    folders = []
    for process in (0, 1):
        plan, records = replanned(runtime_run, lambda trial, process=process: {"process": process})
        for record in records:
            record.environment = HERE
        folders.append(write_run(plan, records).rename(tmp_path / f"process{process}"))
    [merged] = merge(folders, tmp_path / "merged")
    assert len(merged.records) == 2 * len(records) and not merged.conflicts
    assert [trial.process for trial in Plan.load(merged.folder).trials] == [0] * len(records) + [1] * len(records)


def test_a_contradiction_is_reported_and_the_first_is_kept(machines, tmp_path, capsys, density_run, no_figures):
    plan, _ = density_run
    name = plan.trials[0].id

    def change(record):
        if record.id == name:
            record.rows[0]["bits_per_dim"] = 9.0
        if density(record):
            record.rows[0]["train_seconds"] = 77.0  # times may differ without a contradiction

    first, second = machines("one", density), machines("two", density, THERE, change)
    assert main(["report", str(first), str(second), "--out", str(tmp_path / "merged")]) == 1
    out = capsys.readouterr().out
    assert out.count("conflict: ") == 1
    assert f"conflict: {name}: bits_per_dim is 2.0 and 9.0 in {first}, which is taken, and in {second}" in out
    record = read_record(tmp_path / "merged" / plan.suite / "records" / f"{name}.json")
    assert record.rows[0]["bits_per_dim"] == 2.0
    table = (tmp_path / "merged" / plan.suite / "table.md").read_text()
    assert f"Conflict: {name}: two records differ: bits_per_dim is 2.0 and 9.0, the latter on Processor B" in table


def test_a_successful_record_replaces_a_failed_one(machines, density_run, tmp_path):
    plan, _ = density_run

    def fail(record):
        if record.id == plan.trials[0].id:
            record.status, record.reason, record.rows = "oom", "no memory", []

    [merged] = merge([machines("one", density, change=fail), machines("two", density)], tmp_path / "merged")
    assert read_record(merged.folder / "records" / f"{plan.trials[0].id}.json").status == "ok"
    [remark] = merged.remarks
    assert "ok in" in remark and "oom in" in remark and not merged.conflicts


def test_times_are_those_of_one_machine_and_the_others_are_named(machines, density_run, tmp_path):
    plan, _ = density_run
    timed = [trial.id for trial in plan.trials if trial.kind == "runtime"]
    first = machines("one", lambda r: density(r) or r.id == timed[0], HERE)
    second = machines("two", lambda r: r.id in timed, THERE)
    [merged] = merge([first, second], tmp_path / "merged")
    [remark] = merged.remarks
    assert str(first) in remark and "Processor A" in remark and not merged.conflicts
    assert len(merged.records) == len(plan.trials)
    assert set(Results.read(merged.folder).of_kind("runtime")["machine"]) == {"Processor B"}


def test_a_suite_of_times_of_two_machines_or_parts_is_not_merged(runtime_run, write_run, tmp_path):
    """Layers are timed side by side, on one machine."""
    plan, records = runtime_run
    folders = []
    for number, environment in enumerate((HERE, THERE)):
        made = [replace(copy.deepcopy(record), environment=environment) for record in records]
        folders.append(write_run(plan, made).rename(tmp_path / f"machine{number}"))
    for number, row in enumerate(plan.rows[:2]):
        folders.append(tmp_path / f"part{number}")
        plan.limited([trial.without_rows(set(plan.rows) - {row}) for trial in plan.trials]).save(folders[-1])
    for pair in (folders[:2], folders[2:]):
        with pytest.raises(UserError, match=str(pair[1])):
            merge(pair, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_layers_that_were_not_timed_side_by_side_share_no_table(machines, density_run, tmp_path):
    plan, _ = density_run
    parts = [plan.limited([trial.without_rows({row}) for trial in plan.trials if trial.rows != (row,)]) for row in ROWS]
    folders = [machines(str(number), lambda record: False, made=part) for number, part in enumerate(parts)]
    [merged] = merge(folders[:2], tmp_path / "merged")
    joined, [remark] = Plan.load(merged.folder), merged.remarks
    assert str(folders[1]) in remark and joined.rows == (*ROWS[1:], ROWS[0])
    assert {trial.rows for trial in joined.trials if trial.alone} == {ROWS[1:]}


def test_repetitions_of_other_settings_are_refused(machines, density_run, replanned, tmp_path):
    def of_seeds(seeds, **changes):
        return lambda trial: None if trial.kind != "density" or trial.seed not in seeds else changes

    first, _ = replanned(density_run, of_seeds((0, 1)), seeds=(0, 1))
    second, _ = replanned(density_run, of_seeds((2,), **{"training.steps": 7}), seeds=(2,))
    folders = [machines(name, density, made=made) for name, made in (("one", first), ("two", second))]
    with pytest.raises(UserError, match=r"differ in training.steps \(40 and 7\): not one table"):
        merge(folders, tmp_path / "merged")


def test_times_of_different_machines_in_one_folder_are_not_pooled(density_run):
    """A run on a shared disk may have been resumed on another machine."""
    plan, records = density_run
    timed = [record for record in records if record.trial["kind"] == "runtime"]
    for record, environment in zip(timed, (HERE, THERE), strict=True):
        record.environment = environment
    frame = Results.of(plan, records).of_kind("runtime")
    here, elsewhere = (frame[frame["status"] == status].iloc[-1] for status in ("ok", "elsewhere"))
    assert here["machine"] == "Processor A" and here["median_ms"] > 0
    assert pd.isna(elsewhere["median_ms"]) and "never pooled" in elsewhere["reason"]


@pytest.mark.parametrize(
    ("change", "about", "words"),
    [
        ({"device": "cuda"}, {"device": "cuda"}, "device cpu, .* of cuda"),
        ({"profile": "paper"}, {"profile": "paper"}, "profile quick, .* of paper"),
        ({"training.steps": 7}, {}, r"training.steps \(40 and 7\)"),
    ],
)
def test_runs_that_cannot_share_a_table_are_refused(machines, density_run, replanned, tmp_path, change, about, words):
    made, _ = replanned(density_run, lambda trial: change if about or trial.kind == "density" else {}, **about)
    with pytest.raises(UserError, match=words):
        merge([machines("one", density), machines("two", density, made=made)], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_merging_never_overwrites_a_run(machines, tmp_path, density_run):
    plan, _ = density_run
    first, second = machines("one", density), machines("two", density)
    with pytest.raises(UserError, match="is one of the folders to be merged"):
        merge([first, second], first.parent)
    with pytest.raises(UserError, match="holds a run, not a merge"):
        merge([first, second], machines("three").parent)
    merge([first, second], tmp_path / "merged")
    stray = blank_record(plan.trials[-1], "ok", None)
    write_record(tmp_path / "merged" / plan.suite / "records", stray)
    [merged] = merge([first, second], tmp_path / "merged")
    assert not (merged.folder / "records" / f"{stray.id}.json").exists(), "a merged folder is rebuilt from its sources"


def test_a_damaged_record_is_named_and_left_out(machines, density_run, tmp_path):
    plan, _ = density_run
    first, second = machines("one", density), machines("two", density)
    (second / "records" / f"{plan.trials[0].id}.json").write_text("{")
    [merged] = merge([first, second], tmp_path / "merged")
    name = f"{second}: records/{plan.trials[0].id}.json"
    assert len(merged.records) == 18 and merged.remarks[0].startswith(f"{name}: not a readable record")


def test_a_merge_replaces_its_own_records_alone(machines, tmp_path, density_run, no_figures):
    whole, half = machines("whole"), machines("half", lambda r: density(r) and r.trial["seed"] == 0)
    [merged] = merge([whole], tmp_path / "merged")
    (merged.folder / "records" / "mine.json").write_text("mine")
    [again] = merge([half], tmp_path / "merged")
    assert again.folder == merged.folder
    assert len(list((again.folder / "records").glob("*-s0-*.json"))) == len(again.records)
    assert len(list((again.folder / "records").iterdir())) == len(again.records) + 1


@pytest.mark.parametrize("name", ["", "records"])
def test_nothing_is_merged_through_a_link(machines, tmp_path, density_run, name):
    whole, victim = machines("whole"), tmp_path / "victim"
    victim.mkdir()
    target = tmp_path / "merged" / density_run[0].suite / name
    target.parent.mkdir(parents=True)
    target.symlink_to(victim)
    with pytest.raises(UserError, match="is a symbolic link"):
        merge([whole], tmp_path / "merged")
    assert not list(victim.iterdir())


@pytest.mark.parametrize("name", ["/tmp/elsewhere", "../victim", "..", "", "a/b", "a\0b", ".hidden"])
def test_no_folder_comes_from_a_plan(density_run, tmp_path, name, no_figures):
    plan, records = density_run
    content = json.dumps(json.loads(plan.model_dump_json()) | {"suite": name}).encode()
    evil = tmp_path / "evil.zip"
    evil.write_bytes(archive_bytes(content, records))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=r"evil\.zip: not a readable plan \(suite: .* is no name of a file"):
        merge([evil], tmp_path / "out")
    assert main(["report", str(evil), "--out", str(tmp_path / "out")]) == 2
    assert main(["export", str(evil), "--to", "csv"]) == 2
    assert sorted(tmp_path.rglob("*")) == before


def made_by(sources, **versions):
    """Return the environment of a record that these sources and versions made."""
    return HERE | {"sources": {"flows/glow.py": "aaa", "mine.py": "one"} | sources, "versions": versions}


def test_a_merge_of_other_source_or_versions_says_so(machines, tmp_path, capsys, no_figures):
    """In the terminal, the table and the page, as `compare` refuses what differs in source."""
    here = made_by({}, torch="2.14", invertbench="0.1")
    there = made_by({"flows/glow.py": "bbb", "layers/scale.py": "ccc"}, torch="2.15", invertbench="0.2")
    folders = [machines(name, lambda r, s=s: r.trial.get("seed", 0) == s) for name, s in (("a", 0), ("b", 1))]
    with_two = machines("c", lambda r: r.trial.get("seed") == 2, there)
    assert main(["report", *map(str, folders), "--out", str(tmp_path / "one")]) == 1, "seed 2 is missing"
    assert "Mixed" not in capsys.readouterr().out
    first = machines("a", lambda r: r.trial.get("seed", 0) < 2, here)
    [merged] = merge([first, with_two], tmp_path / "two")
    assert main(["report", str(first), str(with_two), "--out", str(tmp_path / "two")]) == 0
    shown = capsys.readouterr().out
    page = (merged.folder / "index.html").read_text()
    for words in (
        "trials of different source stand in one table: flows/glow.py changed, as between digits-",
        "trials of different versions of torch stand in one table: 2.14 in 14 trials, 2.15 in 6 trials",
    ):
        assert words in shown and words in page and words in (merged.folder / "table.md").read_text()
        assert any(words in remark for remark in merged.remarks)
    assert len(merged.remarks) == 2, "a file that only some trials have, and a version of this project, are not mixed"


def test_files_of_two_layers_may_share_a_name(machines):
    """A third-party file is compared among the repetitions of a trial."""

    def change(record):
        layer = record.trial.get("layer", {}).get("row")
        record.environment["sources"] = {"mine.py": "other" if layer == ROWS[1] else "one"}

    folder = machines("two_folders", change=change)
    assert Results.read(folder).warnings == []

    def of_seeds(record):
        record.environment["sources"] = {"mine.py": str(record.trial.get("seed"))}

    [warning] = Results.read(machines("changed", change=of_seeds)).warnings
    assert "one table: mine.py changed" in warning


def test_runs_that_are_too_large_together_are_refused(machines, density_run, tmp_path, monkeypatch):
    plan, _ = density_run
    monkeypatch.setattr("harness.planning.plan.MOST_CELLS", len(plan.columns))
    parts = [plan.limited([trial for trial in plan.trials if trial.rows == (row,)]) for row in ROWS[:2]]
    folders = [machines(str(number), lambda record: False, made=part) for number, part in enumerate(parts)]
    too_large = r"the plans of 2 runs make no plan together \(4 cells of .*, and at most 2 cells"
    with pytest.raises(UserError, match=too_large):
        merge(folders, tmp_path / "merged")
