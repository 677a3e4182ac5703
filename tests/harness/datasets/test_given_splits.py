"""Splits that files state, or of whole groups or equal classes; windows that end at a hole; rows in a telling order."""

import numpy as np
import pytest

from harness.core.errors import DataError, UserError
from harness.core.settings import NewSplit
from harness.datasets import Store, find_dataset
from harness.datasets._store.selection import split_groups
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


@pytest.mark.parametrize(
    ("name", "column", "stated"),
    [
        ("set", ["train", "val", "test", "train"] * 50, True),
        ("kfold", [1, 2, 3, 4] * 50, False),
        ("Fold", [1, 2, 3, 4] * 50, True),
        ("fold", [*range(200)], False),
        ("set", ["train", "run", "test", "train"] * 50, False),
        ("set", ["train", "validation"] * 100, False),
    ],
)
def test_a_column_that_seems_to_state_the_split_is_a_warning_until_it_does(store, name, column, stated):
    rows = [f"{a!r},{b!r},{c}" for (a, b), c in zip(VALUES.tolist(), column, strict=True)]
    (store.root / "t.csv").write_text("\n".join([f"a,b,{name}", *rows]))
    for options in ({"shuffle": True}, {"split": name}, {"stratify": name}):
        chosen = {"file": "t.csv", "columns": ["a", "b"], **options}
        warned = stated and "shuffle" in options
        if stated or "split" not in options:
            warnings = CSV.loaded(store, chosen).warnings
            assert [f"is drawn anew; say split: '{name}'" in text for text in warnings] == [True] * warned


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


@pytest.mark.parametrize("data", ["csv", "npz"])
@pytest.mark.parametrize("validation", [False, True])
def test_files_of_train_and_test_are_kept(store, validation, data):
    parts = {"file": VALUES[:100], "validation_file": VALUES[100:130], "test_file": VALUES[130:]}
    if not validation:
        del parts["validation_file"]
    for name, part in parts.items():
        np.savez(store.root / f"{name}.npz", part)
        order = [0, 1] if name == "file" else [1, 0]
        lines = [",".join(map(repr, row)) for row in part[:, order].tolist()]
        (store.root / f"{name}.csv").write_text("\n".join([",".join("ab"[at] for at in order), *lines]))
    form = {"columns": ["a", "b"]} if data == "csv" else {"shape": [2, 1], "kind": "sequence", "shuffle": True}
    options = {name: f"{name}.{data}" for name in parts} | form
    splits = find_dataset(data).loaded(store, options)
    rows = places(splits)
    assert sorted(rows[2]) == list(range(130, 200)), "columns go by name"
    assert sorted(rows[0] + rows[1]) == list(range(130 if validation else 100))
    assert [len(part) for part in rows] == ([100, 30, 70] if validation else [90, 10, 70])
    kept = find_dataset(data).loaded(store, options, KEPT)
    np.testing.assert_array_equal(kept.test, splits.test)
    assert kept.share_of_test(KEPT) == 0 and not np.array_equal(kept.train, splits.train)
    with pytest.raises(UserError, match=r"states its split; leave `split` out of repetitions\.vary, or say keep_test"):
        find_dataset(data).loaded(store, options, NEW)


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


# Rows of one group, such as a subject's, stay in one split, also in new ones, and no window joins two groups

SUBJECTS, ROWS = 12, 50
SERIES = np.random.default_rng(0).standard_normal((SUBJECTS * ROWS, 2))
OWNER = {value: row // ROWS for row, value in enumerate(SERIES[:, 0].tolist())}


@pytest.fixture
def table(store):
    lines = ["a,b,subject", *(f"{a!r},{b!r},s{row // ROWS}" for row, (a, b) in enumerate(SERIES.tolist()))]
    (store.root / "long.csv").write_text("\n".join(lines))

    def load(new=None, **options):
        options = {"file": "long.csv", "columns": ["a", "b"], "groups": "subject", **options}
        return CSV.loaded(store, options, new)

    return load


def owners(events):
    """Return the subjects of each event."""
    return [{OWNER[value] for value in event[0]} for event in events.tolist()]


@pytest.mark.parametrize("length", [1, 16])
@pytest.mark.parametrize("new", [None, NEW, NewSplit(4, keep_test=True)])
def test_splits_share_no_subject_and_windows_have_one(table, length, new):
    splits = table(new, length=length)
    parts = {name: owners(events) for name, events in splits.parts().items()}
    assert all(len(each) == 1 for of_split in parts.values() for each in of_split)
    subjects = [set().union(*of_split) for of_split in parts.values()]
    assert sum(map(len, subjects)) == len(set().union(*subjects)) == SUBJECTS
    assert [len(each) for each in subjects] == [10, 1, 1]
    assert len(splits.train) == 10 * (ROWS // length) and "10, 1, 1 whole groups" in splits.description


def test_new_splits_draw_other_subjects_but_for_a_kept_test(table):
    first = table()
    tests = [owners(table(NewSplit(seed=seed, keep_test=False)).test)[0] for seed in range(8)]
    assert len(set(map(frozenset, tests))) > 2
    new, keep = (NewSplit(seed=5, keep_test=keep_test) for keep_test in (False, True))
    kept = table(keep)
    assert np.array_equal(kept.test, first.test) and kept.share_of_test(keep) == 0
    assert table(new).share_of_test(new) == pytest.approx(1 / SUBJECTS)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"groups": "sbject"}, ["no column 'sbject'", "subject"]),
        ({"groups": "b", "length": 16}, ["rows, and not 16 in a row"]),
    ],
)
def test_groups_that_give_no_split_are_refused(table, options, named):
    with pytest.raises(DataError) as refusal:
        table(**options)
    assert all(text in str(refusal.value) for text in named)


def test_rows_without_a_group_and_too_few_groups_are_refused(table, store):
    text = (store.root / "long.csv").read_text()
    (store.root / "long.csv").write_text(text.replace(",s3\n", ",\n"))
    with pytest.raises(DataError, match="50 rows have no value of 'subject'"):
        table()
    (store.root / "long.csv").write_text("\n".join(text.split("\n")[: 2 * ROWS + 1]))
    with pytest.raises(DataError, match="2 groups; a split needs"):
        table()


@pytest.mark.parametrize("new", [None, NEW, NewSplit(4, keep_test=True)])
def test_events_of_an_array_stay_with_their_group(store, new):
    subjects = np.array([f"s{number % 20}" for number in range(200)])  # not in order
    values = np.random.default_rng(0).standard_normal((200, 1, 8))
    values[50, 0, 3] = np.nan
    np.savez(store.root / "w.npz", x=values, subject=subjects)
    options = {"file": "w.npz", "kind": "sequence", "shape": [1, 8], "groups": "subject", "missing": "drop"}
    splits = NPZ.loaded(store, options, new)
    owner = dict(zip(values[:, 0, 0].tolist(), subjects, strict=True))
    parts = [{owner[event[0][0]] for event in part.tolist()} for part in splits.parts().values()]
    assert [len(part) for part in parts] == [16, 2, 2] and len(set().union(*parts)) == 20
    assert sum(map(len, splits.parts().values())) == 199 and "16, 2, 2 whole groups" in splits.description


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((9, 1, 8)), "subject": np.zeros(8)}, r"of shape \(8,\); it must be .* for each of 9 events"),
        ({"x": np.zeros((9, 1, 8)), "other": np.zeros(9)}, "has no array 'subject'"),
        ({"x_train": np.zeros((9, 1, 8)), "x_test": np.ones((9, 1, 8)), "subject": np.zeros(9)}, "has a split already"),
    ],
)
def test_arrays_of_groups_that_do_not_fit_are_refused(store, arrays, message):
    np.savez(store.root / "w.npz", **arrays)
    options = {"file": "w.npz", "kind": "sequence", "shape": [1, 8], "groups": "subject", "step": 1, "array": None}
    with pytest.raises(DataError, match=message):
        NPZ.loaded(store, options)


def test_shares_count_rows_and_every_split_has_a_group():
    rng = np.random.default_rng(0)
    for seed in range(20):
        groups = np.repeat(np.arange(40), rng.integers(1, 30, 40))
        split, _ = split_groups("x", groups, (0.6, 0.2, 0.1), NewSplit(seed=seed, keep_test=False))
        shares = [(split == place).mean() for place in (0, 1, 2, -1)]
        assert np.allclose(shares, [0.6, 0.2, 0.1, 0.1], atol=0.06)
    assert set(split_groups("x", np.repeat([0, 1, 2], [90, 5, 5]), (0.8, 0.1, 0.1), None)[0]) == {0, 1, 2}
