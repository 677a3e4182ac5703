"""User tables in .csv files: vectors, windows, lattices, and one message for each fault."""

import numpy as np
import pytest

from harness.core.errors import DataError
from harness.datasets import Splits, Store, find_dataset

CSV = find_dataset("csv")
RNG = np.random.default_rng(0)
VALUES = RNG.normal(size=(100, 2))
COUNTS = RNG.integers(-400, 400, (100, 2))
OPTIONS = {"file": "mine.csv", "columns": ["b", "a"]}


@pytest.fixture
def store(tmp_path):
    (tmp_path / "root").mkdir()
    return Store(tmp_path / "root", tmp_path / "cache", offline=True)


def text(values, header="time,a,b"):
    lines = [f"2026-01-{row % 30 + 1:02},{a!r},{b!r}" for row, (a, b) in enumerate(values.tolist())]
    return "\n".join([header, *lines]) + "\n"


def load(store, content, **options) -> Splits:
    (store.root / "mine.csv").write_text(content)
    CSV.check(store, OPTIONS | options)
    return CSV.load(store, OPTIONS | options)


def test_rows_are_vectors_in_the_order_of_the_options(store):
    splits = load(store, text(VALUES))
    assert splits.shape == (2, 1) and [len(part) for part in splits.parts().values()] == [80, 10, 10]
    np.testing.assert_array_equal(np.concatenate(list(splits.parts().values()))[..., 0], VALUES[:, ::-1])
    assert not splits.lattice and splits.unit == "nats_per_dim"
    assert "vectors of 2 columns" in splits.description and "of 100 rows, in order" in splits.description
    shuffled = load(store, text(VALUES), shuffle=True)
    assert not np.array_equal(shuffled.train, splits.train)
    every = np.concatenate(list(shuffled.parts().values()))[..., 0]
    np.testing.assert_array_equal(np.sort(every, axis=0), np.sort(VALUES[:, ::-1], axis=0))


def test_windows_stay_within_their_part(store):
    splits = load(store, text(COUNTS), length=8, stride=2, shares=[0.6, 0.2, 0.2])
    assert splits.shape == (2, 8) and splits.lattice and [step for step, _ in splits.steps] == [1.0, 1.0]
    for part, first, last, stride in (
        (splits.train, 0, 60, 2),
        (splits.validation, 60, 80, 8),
        (splits.test, 80, 100, 8),
    ):
        expected = [COUNTS[begin : begin + 8, ::-1].T for begin in range(first, last - 7, stride)]
        np.testing.assert_array_equal(part, np.array(expected))


def test_a_file_without_a_header_and_values_of_three_decimals(store):
    lines = "\n".join(f"{a / 1000:.3f}, {b}" for a, b in COUNTS)
    splits = load(store, f"{lines}\n\n", columns=2, header=False)
    assert [step for step, _ in splits.steps] == pytest.approx([0.001, 1])
    np.testing.assert_array_equal(splits.test[..., 0], COUNTS[90:])


GOOD = text(VALUES)
FAULTS = {
    "text": (GOOD.replace(repr(float(VALUES[3, 1])), "high"), {}, "line 5, column 'b': 'high' is not a finite number"),
    "empty": (GOOD.replace(repr(float(VALUES[3, 0])), ""), {}, "line 5, column 'a': '' is not a finite number"),
    "infinite": (GOOD.replace(repr(float(VALUES[0, 0])), "inf"), {}, "line 2, column 'a': 'inf' is not"),
    "long line": (GOOD + "2026-02-01,1.0,2.0,3.0\n", {}, "line 102 has 4 cells, and the first has 3"),
    "short line": (GOOD + "2026-02-01,1.0\n", {}, "line 102 has 2 cells, and the first has 3"),
    "no header": (GOOD, {"columns": 3, "header": False}, "line 1, column 1: 'time' is not"),
    "no rows": ("time,a,b\n", {}, "has no rows|No columns"),
    "nothing": ("", {}, "has no column 'b' in line 1; there are none"),
    "unknown": (GOOD, {"columns": ["A"]}, "has no column 'A' in line 1; did you mean a"),
    "twice": (text(VALUES, "a,a,b"), {}, "line 1 has 2 columns 'a'; rename them"),
    "another number": (GOOD, {"columns": 2}, "has 3 columns, and columns = 2 takes all; name some"),
    "few rows": (GOOD, {"length": 11}, "validation has 10 of 100 rows, too few for a window of 11"),
    "wrong step": (GOOD, {"step": 0.5}, "is not a multiple of the step 0.5"),
    "a folder": (None, {}, "it is a folder"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_line_that_names_the_file(store, name):
    content, options, message = FAULTS[name]
    if content is None:
        (store.root / "mine.csv").mkdir()
    with pytest.raises(DataError, match=message) as caught:
        CSV.load(store, OPTIONS | options) if content is None else load(store, content, **options)
    assert str(caught.value).startswith(f"csv: {store.root / 'mine.csv'}") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["a", "a"]}, "names a column twice"),
        ({"header": False}, "should be true for columns with names"),
        ({"length": 4, "shuffle": True}, "should be false for windows"),
        ({"shares": [0.8, 0.1, 0.2]}, "should sum to at most 1"),
        ({"shares": [0.8, 0.2]}, "shares"),
        ({"step": [0.1, 0.1, 0.1]}, "there are 2 columns"),
    ],
)
def test_wrong_options(options, message):
    [(name, fault)] = CSV.option_errors(OPTIONS | options)
    assert message in fault and name.partition(".")[0] in options
