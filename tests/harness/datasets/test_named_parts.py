"""Columns by number, values that stand for missing ones, and arrays of any name are read as the options say."""

import numpy as np
import pytest

import harness.datasets  # noqa: F401  registers csv and npz
from harness.core.errors import DataError
from harness.datasets.base import DATASETS

VALUES = np.random.default_rng(0).standard_normal((100, 3))


def csv(store, lines, **options):
    (store.root / "t.csv").write_text("\n".join(lines))
    return DATASETS["csv"]().loaded(store, {"file": "t.csv", "shares": [0.8, 0.1, 0.1], **options})


def npz(store, content, **options):
    np.savez(store.root / "a.npz", **content)
    return DATASETS["npz"]().loaded(store, {"file": "a.npz", "kind": "sequence", "shape": [3, 1], **options})


def test_columns_by_number_where_there_is_no_header(store):
    lines = [f"{a!r},g,{b!r}" for a, b in VALUES[:, :2].tolist()]
    splits = csv(store, lines, columns=[3, 1], header=False)
    np.testing.assert_array_equal(splits.train[:, :, 0], VALUES[:80, [1, 0]])
    with pytest.raises(DataError, match="number 4"):
        csv(store, lines, columns=[4], header=False)
    assert DATASETS["csv"]().channels({"file": "t.csv", "columns": [3, 1], "header": False}) == ("column 3", "column 1")


@pytest.mark.parametrize(
    ("missing", "cells"), [([-9999], ["-9999", "-9999.0", "-9999"]), ([-9999, "."], [".", "-9.999e3", "."])]
)
def test_stated_values_stand_for_missing_ones_and_are_counted(store, missing, cells):
    lines = ["a,b", *(f"{a!r},{b!r}" for a, b in VALUES[:, :2].tolist())]
    for place, cell in zip((5, 50, 60), cells, strict=True):
        lines[place] = f"{cell},0.5"
    splits = csv(store, lines, columns=["a", "b"], missing=missing)
    assert sum(map(len, splits.parts().values())) == 97 and "3 of 100 rows" in splits.left_out[0]
    assert min(part.min() for part in splits.parts().values()) > -10
    with pytest.raises(DataError, match="row 5, column 'a'" if "." in cells else "are -9999"):
        csv(store, lines, columns=["a", "b"])


def test_arrays_by_name_and_rows_of_a_matrix_as_vectors(store):
    both = {"X": VALUES, "y": np.arange(100)}
    alone = npz(store, both, array="X")
    np.testing.assert_array_equal(alone.train[:, :, 0], VALUES[: len(alone.train)])
    parts = {"a": VALUES[:70], "b": VALUES[70:80], "c": VALUES[80:], "labels": np.arange(3)}
    splits = npz(store, parts, arrays=["a", "b", "c"])
    np.testing.assert_array_equal(splits.test[:, :, 0], VALUES[80:])
    np.testing.assert_array_equal(splits.validation[:, :, 0], VALUES[70:80])
    assert len(npz(store, parts, arrays=["a", "c"]).validation) == 7  # a tenth of train
    with pytest.raises(DataError, match="array: NAME"):
        npz(store, both)
    with pytest.raises(DataError, match="no array 'Z'"):
        npz(store, both, array="Z")
