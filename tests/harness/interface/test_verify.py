"""`verify` trains trials of a run again, and finds forged records and weights of others."""

import shutil

import pytest

import harness
from harness.cli.parser import main
from harness.core.errors import UserError
from harness.core.records import read_record, write_record

SUITE = {
    "suite": "handed-in",
    "kind": "density",
    "layers": {"conv1x1": {}},
    "flow": {"levels": 1, "steps": 1, "width": 4},
    "training": {"steps": 4, "batch_size": 16, "evaluate_every": 2},
    "tuning": {
        "seed": 100,
        "candidates": 2,
        "steps": 4,
        "space": {"training.learning_rate": {"low": 1e-3, "high": 1e-2, "scale": "log"}},
    },
    "profiles": {"quick": {"seeds": 2, "datasets": {"digits": {}}}},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the folder of a tuned run of two seeds."""
    folder = tmp_path_factory.mktemp("run")
    assert harness.run(SUITE, out=folder, quiet=True).ok
    return folder / "handed-in"


@pytest.mark.system
def test_honest_records_are_the_same_again_also_from_an_archive(run, tmp_path, capsys):
    verified = harness.verify(run, number=5, out=tmp_path / "folder")
    assert verified.same and capsys.readouterr().out.count(": evaluated and audited again, as recorded") == 2
    harness.report(run, archive=True)
    command = ["report", str(run / "records.zip"), "--verify", "1", "--out", str(tmp_path / "archive")]
    assert main(command) == 0 and "verified" in capsys.readouterr().out
    assert main(command) == 2, "its place is taken"
    with pytest.raises(UserError, match="holds a verification already"):
        harness.verify(run, out=tmp_path / "folder")


@pytest.mark.system
@pytest.mark.parametrize("change", [-0.02, 0.02])
def test_a_forged_likelihood_is_found_whether_it_flatters_or_not(run, tmp_path, change):
    forged = shutil.copytree(run, tmp_path / "forged")
    for path in (forged / "records").glob("*.json"):
        record = read_record(path)
        if record.trial["kind"] == "density":
            row = record.rows[0]
            row |= {name: row[name] + change for name in ("bits_per_dim", "nats_per_dim")}
            write_record(path.parent, record)
    verified = harness.verify(forged, number=1, out=tmp_path / "out")
    assert not verified.same and set(verified.counts) == {"worse" if change < 0 else "better"}
    assert len(verified.damaged) == 1 and "recorded" in verified.damaged[0]


@pytest.mark.system
def test_weights_of_another_seed_contradict_the_record(run, tmp_path):
    forged = shutil.copytree(run, tmp_path / "forged")
    first, second = sorted((forged / "weights").glob("*.pt"))
    first.write_bytes(second.read_bytes())
    with pytest.raises(UserError, match="the weights of trial"):
        harness.verify(forged, number=2, out=tmp_path / "out")


def test_a_run_without_results_is_refused(density_run, write_run):
    plan, _ = density_run
    folder = write_run(plan, [])
    with pytest.raises(UserError, match="no trial that trains or computes has ended well"):
        harness.verify(folder)
