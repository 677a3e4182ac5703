import json

import pytest

from harness.core.errors import UserError
from harness.core.files import write_atomically
from harness.core.records import blank_record, read_record, write_record
from harness.core.settings import FlowSettings, LayerRef
from harness.kinds.parameters.trial import ParametersTrial

TRIAL = ParametersTrial(
    suite="s",
    profile="quick",
    label="d",
    shape=(2, 4),
    layer=LayerRef(row="one", layer="woodbury", options={"rank_space": 4}),
    flow=FlowSettings(),
)


def test_a_record_survives_the_disk(tmp_path):
    record = blank_record(TRIAL, "diverged", "loss is nan at step 3 – ±")
    record.rows = [{"parameters": 2**62, "published": None, "masked_free": 3}]
    path = write_record(tmp_path, record)
    assert path.name == f"{TRIAL.id}.json"
    assert read_record(path) == record
    assert ParametersTrial.model_validate(read_record(path).trial).id == TRIAL.id


def test_a_measure_that_is_no_column_is_refused(tmp_path):
    record = blank_record(TRIAL, "ok", None)
    record.rows = [{"parameters": 1}, {"parameters": 2, "bits_per_dim": 0.5, "paramters": 3}]
    with pytest.raises(ValueError, match="'bits_per_dim', 'paramters' is not a column of results of kind 'parameters'"):
        write_record(tmp_path, record)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_values_without_json_are_refused_and_the_old_record_is_kept(tmp_path, value):
    record = blank_record(TRIAL, "ok", None)
    path = write_record(tmp_path, record)
    record.rows = [{"parameters": value}]
    with pytest.raises((ValueError, TypeError)):
        write_record(tmp_path, record)
    assert read_record(path).rows == []
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "splendid"},
        {"stranger": 1},
        {"rows": "abc"},
        {"rows": [1]},
        {"rows": [{"parameters": 1, "stranger": 2}]},
        {"rows": [{"parameters": True}]},
        {"rows": [{"parameters": 1.0}]},
        {"rows": [{"parameters": 1 << 63}]},
        {"rows": [{"device": 1}]},
        {"curves": []},
        {"environment": None},
        {"trial": {}},
        {"id": "another"},
        {"format": 1},
        {"notes": {"remark": "\x1b[31m"}},
    ],
    ids=str,
)
def test_a_record_with_another_value_is_named(tmp_path, changes):
    path = write_record(tmp_path, blank_record(TRIAL, "ok", None))
    for ascii_only in (True, False):
        path.write_text(json.dumps(json.loads(path.read_text()) | changes, ensure_ascii=ascii_only))
        with pytest.raises(UserError, match=f"{TRIAL.id}.json: not a readable record"):
            read_record(path)


def test_an_interrupted_write_leaves_the_old_content(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def interrupted(handle):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
