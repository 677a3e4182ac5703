"""`replicate`: the draws of a suite are run, resumed and compared."""

import pandas as pd
import pytest

from harness.cli.parser import main

SUITE = """\
suite: drawn
kind: density
layers: {conv1x1: {}, woodbury: {}}
tuning: {candidates: 2, steps: 1, space: {training.learning_rate: [1e-3, 1e-2]}}
flow: {levels: 1, steps: 1, width: 4}
training: {batch_size: 32, steps: 2}
profiles:
  quick: {repetitions: {number: 3}, datasets: {digits: {}}}
"""


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "drawn.yaml"
    path.write_text(SUITE)
    return str(path)


@pytest.mark.system
def test_each_draw_is_a_run_of_its_own_and_the_same_command_goes_on(suite, tmp_path, capsys):
    command = ["replicate", suite, "--draws", "2", "--out", str(tmp_path / "out")]
    assert main(command) == 0
    folder = tmp_path / "out" / "drawn-draws"
    results = [pd.read_csv(folder / f"draw-{number}" / "drawn" / "results.csv") for number in (0, 1)]
    assert [len(frame) for frame in results] == [18, 18] and not set(results[0]["id"]) & set(results[1]["id"])
    table = pd.read_csv(folder / "replication.csv")
    assert list(table["first"] + " " + table["second"]) == ["conv1x1 woodbury"]
    assert "other sign" in capsys.readouterr().out
    before = (folder / "replication.csv").read_bytes()
    records = {path: path.stat().st_mtime_ns for path in folder.glob("draw-*/drawn/records/*.json")}
    assert main(command) == 0 and (folder / "replication.csv").read_bytes() == before
    assert {path: path.stat().st_mtime_ns for path in records} == records, "nothing ran again"
    runs = [str(folder / f"draw-{number}" / "drawn") for number in (1, 0)]
    assert main(["replicate", *runs, "--out", str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "replication.md").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--draws", "1"], "argument --draws: the number 1 must be at least 2"),
        (["--set", "draw=4"], "--set draw: each draw of a replication has its own"),
        (["--only", "layer=woodbury"], "1 of its 1 layers can be ranked"),
        (["--only", "repetition=0,1"], "its layers have 2 seeds or repetitions in common, and an interval needs 3"),
        (["--draws", "x"], "argument --draws: expected a whole number"),
    ],
)
def test_what_cannot_be_replicated_is_one_message_before_anything_runs(suite, tmp_path, capsys, options, message):
    assert main(["replicate", suite, "--out", str(tmp_path / "out"), *options]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_suite_that_draws_nothing_is_refused(tmp_path, capsys):
    assert main(["replicate", "parameters", "--out", str(tmp_path)]) == 2
    assert "a suite of kind parameters draws nothing" in capsys.readouterr().err
