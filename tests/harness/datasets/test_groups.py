"""Rows of one group, such as a subject's, stay in one split, also in new ones, and no window joins two groups."""

import numpy as np
import pytest

import harness.datasets  # noqa: F401  registers csv
from harness.core.errors import DataError
from harness.core.settings import NewSplit
from harness.datasets._store.selection import split_groups
from harness.datasets.base import DATASETS

SUBJECTS, ROWS = 12, 50
SERIES = np.random.default_rng(0).standard_normal((SUBJECTS * ROWS, 2))
OWNER = {value: row // ROWS for row, value in enumerate(SERIES[:, 0].tolist())}


@pytest.fixture
def table(store):
    lines = ["a,b,subject", *(f"{a!r},{b!r},s{row // ROWS}" for row, (a, b) in enumerate(SERIES.tolist()))]
    (store.root / "long.csv").write_text("\n".join(lines))

    def load(new=None, **options):
        options = {"file": "long.csv", "columns": ["a", "b"], "groups": "subject", **options}
        return DATASETS["csv"]().loaded(store, options, new)

    return load


def owners(events):
    """Return the subjects of each event."""
    return [{OWNER[value] for value in event[0]} for event in events.tolist()]


@pytest.mark.parametrize("length", [1, 16])
@pytest.mark.parametrize("new", [None, NewSplit(seed=3, keep_test=False), NewSplit(seed=4, keep_test=True)])
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


@pytest.mark.parametrize("new", [None, NewSplit(seed=3, keep_test=False), NewSplit(seed=4, keep_test=True)])
def test_events_of_an_array_stay_with_their_group(store, new):
    subjects = np.array([f"s{number % 20}" for number in range(200)])  # not in order
    values = np.random.default_rng(0).standard_normal((200, 1, 8))
    values[50, 0, 3] = np.nan
    np.savez(store.root / "w.npz", x=values, subject=subjects)
    options = {"file": "w.npz", "kind": "sequence", "shape": [1, 8], "groups": "subject", "missing": "drop"}
    splits = DATASETS["npz"]().loaded(store, options, new)
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
        DATASETS["npz"]().loaded(store, options)


def test_shares_count_rows_and_every_split_has_a_group():
    rng = np.random.default_rng(0)
    for seed in range(20):
        groups = np.repeat(np.arange(40), rng.integers(1, 30, 40))
        split, _ = split_groups("x", groups, (0.6, 0.2, 0.1), NewSplit(seed=seed, keep_test=False))
        shares = [(split == place).mean() for place in (0, 1, 2, -1)]
        assert np.allclose(shares, [0.6, 0.2, 0.1, 0.1], atol=0.06)
    assert set(split_groups("x", np.repeat([0, 1, 2], [90, 5, 5]), (0.8, 0.1, 0.1), None)[0]) == {0, 1, 2}
