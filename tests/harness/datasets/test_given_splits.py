"""Splits that a table states or that keep classes, windows that end at a hole in time, and rows in a telling order."""

import numpy as np
import pytest

from harness.core.errors import DataError, UserError
from harness.core.settings import NewSplit
from harness.datasets import Store, find_dataset
from harness.pipeline.data_remarks import examine

CSV, NPZ = find_dataset("csv"), find_dataset("npz")
VALUES = np.random.default_rng(0).standard_normal((200, 2))
NEW, KEPT = NewSplit(3, keep_test=False), NewSplit(3, keep_test=True)


def load(store, column, new=None, values=VALUES, data="csv", **options):
    """Write a table of the values with one more column `c`, and return the splits of all its columns of numbers."""
    if data == "npz":
        np.savez(store.root / "t.npz", x=values, c=column)
        return NPZ.loaded(store, {"file": "t.npz", "shape": [2, 1], "kind": "sequence", **options}, new)
    rows = [f"{a!r},{b!r},{c}" for (a, b), c in zip(values.tolist(), column, strict=True)]
    (store.root / "t.csv").write_text("\n".join(["a,b,c", *rows]))
    return CSV.loaded(store, CSV.located({"file": "t.csv", **options}, None, store.root), new)


def places(splits):
    """Return the rows of each split's vectors."""
    row = {value: number for number, value in enumerate(VALUES[:, 0].tolist())}
    return [[row[event[0][0]] for event in part.tolist()] for part in splits.parts().values()]


GIVEN = {
    "names": (["Train", "val", "TEST", "training"] * 50, [{0, 3}, {1}, {2}]),
    "folds": ([1, 2, 3, 4] * 50, [{0, 1}, {2}, {3}]),
}


@pytest.mark.parametrize("kind", GIVEN)
def test_a_column_states_the_split_and_is_no_value(store, kind):
    column, expected = GIVEN[kind]
    splits = load(store, column, split="c")
    assert [{row % 4 for row in part} for part in places(splits)] == expected
    assert splits.shape == (2, 1) and "split as stated" in splits.description
    kept = load(store, column, KEPT, split="c")
    np.testing.assert_array_equal(kept.test, splits.test)
    assert sorted(row for part in places(kept) for row in part) == list(range(200)) and kept.share_of_test(KEPT) == 0
    with pytest.raises(UserError, match=r"states its split; leave `split` out of repetitions\.vary, or say keep_test"):
        load(store, column, NEW, split="c")
    with pytest.raises(UserError, match=r"leave `split` out of repetitions\.vary$"):
        load(store, column, KEPT, split="c", length=2)


def test_without_validation_a_tenth_of_train_is_held_out(store):
    splits = load(store, ["train"] * 100 + ["test"] * 100, split="c")
    rows = places(splits)
    assert [len(part) for part in rows] == [90, 10, 100] and set(rows[2]) == set(range(100, 200))
    windows = load(store, ["train"] * 100 + ["test"] * 100, split="c", length=10)
    np.testing.assert_array_equal(windows.validation[0], VALUES[90:100].T)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["train", "test", "late", "early"] * 50, "has 'early', 'late', 'test', 'train'; it must have train, test"),
        (["train", "validation"] * 100, "it must have train, test"),
        ([0, 1] * 100, "has 2 folds; a split needs three"),
        (["train", "test", "", "test"] * 50, "50 rows have no value of 'c'"),
    ],
)
def test_a_column_that_states_no_split_is_refused(store, column, message):
    with pytest.raises(DataError, match=message):
        load(store, column, split="c")


@pytest.mark.parametrize("validation", [False, True])
def test_files_of_train_and_test_are_kept(store, validation):
    for name, rows in (("val", VALUES[100:130]), ("test", VALUES[130:])):
        (store.root / f"{name}.csv").write_text("b,a\n" + "\n".join(f"{b!r},{a!r}" for a, b in rows.tolist()))
    more = {"validation_file": "val.csv"} if validation else {}
    splits = load(store, [1] * 100, values=VALUES[:100], test_file="test.csv", **more)
    rows = places(splits)
    assert sorted(rows[2]) == list(range(130, 200)), "columns go by name"
    assert sorted(rows[0] + rows[1]) == list(range(130 if validation else 100))
    assert [len(part) for part in rows] == ([100, 30, 70] if validation else [90, 10, 70])
    assert "split as stated" in splits.description


@pytest.mark.parametrize("validation", [False, True])
def test_array_files_of_train_and_test_are_kept(store, validation):
    for name, rows in (("train", VALUES[:100]), ("val", VALUES[100:130]), ("test", VALUES[130:])):
        np.savez(store.root / f"{name}.npz", rows)
    options = {"file": "train.npz", "test_file": "test.npz", "shape": [2, 1], "kind": "sequence", "shuffle": True}
    options |= {"validation_file": "val.npz"} if validation else {}
    splits = NPZ.loaded(store, options)
    rows = places(splits)
    assert sorted(rows[2]) == list(range(130, 200))
    assert sorted(rows[0] + rows[1]) == list(range(130 if validation else 100))
    assert [len(part) for part in rows] == ([100, 30, 70] if validation else [90, 10, 70])
    kept = NPZ.loaded(store, options, KEPT)
    np.testing.assert_array_equal(kept.test, splits.test)
    assert kept.share_of_test(KEPT) == 0 and not np.array_equal(kept.train, splits.train)
    with pytest.raises(UserError, match=r"states its split; leave `split` out of repetitions\.vary, or say keep_test"):
        NPZ.loaded(store, options, NEW)


@pytest.mark.parametrize("new", [None, NEW, KEPT])
def test_new_splits_of_digits_have_equal_shares_of_each_digit_if_asked_to(new):
    from sklearn.datasets import load_digits

    digits, store = load_digits(), Store.at(None)
    classes = {image.astype(np.uint8).tobytes(): at for image, at in zip(digits.images, digits.target, strict=True)}
    splits = find_dataset("digits").loaded(store, {"stratify": True}, new)
    first = find_dataset("digits").loaded(store, {})
    found = [[image.tobytes() for image in part] for part in splits.parts().values()]
    assert sorted(event for part in found for event in part) == sorted(image.tobytes() for image in every(first))
    for part in found[1:]:
        assert np.bincount([classes[event] for event in part]).tolist() == [25] * 10
    assert np.array_equal(splits.test, first.test) == (new is not NEW)
    assert np.array_equal(splits.validation, first.validation) == (new is None)


def every(splits):
    """Return all events."""
    return np.concatenate(list(splits.parts().values()))


@pytest.mark.parametrize("data", ["csv", "npz"])
@pytest.mark.parametrize("new", [None, NEW, KEPT])
def test_classes_have_the_same_shares_in_all_splits(store, new, data):
    classes = np.repeat(["a", "b", "c"], [120, 60, 20])
    splits = load(store, classes, new, data=data, stratify="c")
    for part, size in zip(places(splits), (160, 20, 20), strict=True):
        counts = [(classes[part] == name).sum() for name in "abc"]
        assert np.allclose(counts, [0.6 * size, 0.3 * size, 0.1 * size], atol=1.01)
    assert "the same shares of 3 classes" in splits.description
    first = load(store, classes, data=data, stratify="c")
    assert np.array_equal(splits.test, first.test) == (new is not NEW)
    assert np.array_equal(splits.train, first.train) == (new is None)


@pytest.mark.parametrize("as_dates", [False, True])
def test_no_window_spans_a_hole_in_time_or_a_step_back(store, as_dates):
    times = np.arange(200.0)
    times[37:] += 5
    times[90:] -= 40
    column = np.datetime64("2026-01-01") + (times * 3600).astype("timedelta64[s]") if as_dates else times
    splits = load(store, column, time="c", length=10, stride=5, shares=[0.8, 0.1, 0.1])
    row = {value: number for number, value in enumerate(VALUES[:, 0].tolist())}
    begins = [row[value] for value in splits.train[:, 0, 0].tolist()]
    assert begins == [*range(0, 28, 5), *range(37, 81, 5), *range(90, 151, 5)]
    assert splits.shape == (2, 10)
    ring = load(store, column, NEW, time="c", length=10)
    for event in np.concatenate(list(ring.parts().values())):
        first = row[event[0, 0]]
        assert not any(first < hole < first + 10 for hole in (37, 90))
    with pytest.raises(DataError, match="row 2 has no time in 'c': 'noon'"):
        load(store, ["2026-01-01", "noon"] * 100, time="c", length=10)


def test_rows_in_an_order_that_shuffled_ones_would_not_have_are_a_warning(store):
    sorted_rows = VALUES[np.argsort(VALUES[:, 1])]
    splits = load(store, [""] * 200, values=sorted_rows)
    [warning] = splits.warnings
    assert "the mean of 'b' in test is" in warning and "say shuffle: true" in warning
    assert any(remark.warning and remark.text == warning for remark in examine(splits))
    for options in ({"shuffle": True}, {"length": 4}):
        assert load(store, [""] * 200, values=sorted_rows, **options).warnings == ()
    assert load(store, [""] * 200).warnings == ()
