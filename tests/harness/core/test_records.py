"""Records survive the disk; another value, a foreign record and arrays that could be none are named."""

import io
import json

import numpy as np
import pytest

from harness.core.errors import UserError
from harness.core.files import write_atomically
from harness.core.records import blank_record, read_arrays, read_record, write_arrays, write_record
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


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"parameters": float("nan")}, "not JSON compliant"),
        ({"parameters": float("inf")}, "not JSON compliant"),
        ({"parameters": object()}, "not JSON serializable"),
        (
            {"bits_per_dim": 0.5, "paramters": 3},
            "unknown key 'bits_per_dim' in .0.; the `columns` of trials of kind",
        ),
    ],
)
def test_a_record_that_could_not_be_read_again_is_refused_and_the_old_one_is_kept(tmp_path, row, words):
    record = blank_record(TRIAL, "ok", None)
    path = write_record(tmp_path, record)
    record.rows = [row]
    with pytest.raises((ValueError, TypeError), match=words):
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
        {"arrays": f"../{TRIAL.id}.{'0' * 64}.npz"},
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


def test_arrays_are_unpacked_as_numpy_does(tmp_path):
    arrays = {"data": np.arange(6, dtype="u1").reshape(2, 3), "map a 1: b": np.eye(2, dtype="f2"), "n": np.array(3)}
    arrays["fortran"] = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    unpacked = read_arrays(tmp_path, write_arrays(tmp_path, "a", content.getvalue()))
    assert unpacked.keys() == arrays.keys()
    assert all(
        (unpacked[name] == array).all() and unpacked[name].dtype == array.dtype for name, array in arrays.items()
    )
    with pytest.raises(UserError, match=r"a\.[0-9a-f]{64}\.npz: damaged arrays \(.*\); run the suite again"):
        read_arrays(tmp_path, write_arrays(tmp_path, "a", b"rubbish"))
