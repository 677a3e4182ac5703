"""New splits of every data set: sizes, disjointness, determinism, and no leak between neighbours in time."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from toys import events

from harness.core.errors import DataError, UserError
from harness.core.settings import DataRef, NewSplit
from harness.datasets import DATASETS, Dataset, DatasetInfo, Splits, Store, find_dataset, waveforms
from harness.execution.data import check_data, examine_data

NOWHERE = Store(None, None, offline=True)
RAMP = np.arange(9000)


def sizes(splits):
    return [len(values) for values in splits.parts().values()]


def same(first, second):
    return all(np.array_equal(values, second.parts()[name]) for name, values in first.parts().items())


def assert_apart(times, gap):
    """Check that the samples of two splits, by their times, are more than `gap` apart."""
    covered = {name: np.unique(values).astype(int) for name, values in times.items()}
    for first, second in combinations(covered, 2):
        order = np.concatenate([covered[first], covered[second]]).argsort()
        owners = order < len(covered[first])
        moments = np.concatenate([covered[first], covered[second]])[order]
        nearest = np.diff(moments)[owners[1:] != owners[:-1]].min()
        assert nearest > gap, f"{first} and {second} are {nearest} apart"


def assert_whole(splits):
    """Check that the values of each event, its times, follow one another: no window crosses a hole or the joint."""
    for values in splits.parts().values():
        assert (np.diff(values, axis=-1) == 1).all()


# Settings


def test_the_split_is_a_part_of_the_data_and_left_out_of_trials_without_one():
    plain = DataRef(label="a", name="digits", permute=1)
    assert not {"split", "keep_test"} & set(plain.model_dump()) and plain.new_split is None
    drawn = plain.model_copy(update={"split": 3, "keep_test": True})
    assert drawn.model_dump()["split"] == 3 and drawn.new_split == NewSplit(3, True)
    assert DataRef.model_validate(drawn.model_dump()) == drawn
    others = [plain, drawn, plain.model_copy(update={"split": 3}), plain.model_copy(update={"split": 4})]
    assert len({data.arrays for data in others}) == 4
    assert drawn.arrays == drawn.model_copy(update={"label": "b", "permute": None, "checksum": "c"}).arrays


# Events in any order


@pytest.mark.parametrize("keep_test", [False, True])
def test_pooled_events_are_shuffled_into_the_same_sizes(keep_test):
    digits = find_dataset("digits")
    plain = digits.loaded(NOWHERE, {})
    first, again, other = (digits.loaded(NOWHERE, {}, NewSplit(seed, keep_test)) for seed in (3, 3, 4))
    assert sizes(first) == sizes(plain) == [1297, 250, 250]
    assert same(first, again) and not same(first, other)
    assert events(*first.parts().values()) == events(*plain.parts().values())
    assert np.array_equal(first.test, plain.test) == keep_test
    assert first.share_of_test(NewSplit(3, keep_test)) == (0 if keep_test else 250 / 1797)
    assert plain.share_of_test(None) is None
    assert "; split 3: the events of train" in first.description and first.levels == plain.levels


def test_mapped_arrays_are_pooled_in_memory_with_the_checksum_of_the_base(store):
    images = np.arange(400, dtype=np.uint16).reshape(100, 1, 2, 2)
    np.savez(store.root / "a.npz", x_train=images[:80], x_test=images[80:])
    npz, options = find_dataset("npz"), {"file": "a.npz", "shape": [1, 2, 2]}
    plain, drawn = (npz.loaded(store, options, new) for new in (None, NewSplit(1)))
    assert isinstance(plain.train, np.memmap) and not isinstance(drawn.train, np.memmap)
    assert sizes(drawn) == sizes(plain) and drawn.checksum == plain.checksum is not None
    assert len(np.unique(np.concatenate([*drawn.parts().values()]))) == 400
    assert drawn.share_of_test(NewSplit(1)) == 0.2 and len(list((store.cache / "prepared").glob("npz-*/"))) == 1
    few = npz.loaded(store, options | {"train": 10, "validation": 5, "test": 5}, NewSplit(1))
    assert sizes(few) == [10, 5, 5] and few.share_of_test(NewSplit(1)) == 0.25


# Events in time


@pytest.mark.parametrize("keep_test", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_windows_of_a_recording_do_not_leak(store, write_segment, seed, keep_test):
    write_segment(store.root, "r", {"PLETH": RAMP, "ABP": RAMP})
    options = {"records": ["r"], "length": 32, "stride": 8, "gap_seconds": 2.0}
    wfdb = find_dataset("wfdb")
    plain, drawn, again = (wfdb.loaded(store, options, new) for new in (None, *[NewSplit(seed, keep_test)] * 2))
    assert_apart(drawn.parts(), gap=250)
    assert_whole(drawn)
    assert same(drawn, again) and not same(drawn, plain) and drawn.checksum != plain.checksum
    begins = {name: np.sort(values[:, 0, 0]) for name, values in drawn.parts().items()}
    assert np.median(np.diff(begins["train"])) == 8 and np.diff(begins["test"]).min() >= 32
    assert [abs(len(values) - 900 // 32) <= 1 for values in (drawn.validation, drawn.test)] == [True, True]
    assert drawn.share_of_test(NewSplit(seed, keep_test)) == (0 if keep_test else 0.1)
    assert np.array_equal(drawn.test, plain.test) == keep_test


@pytest.mark.parametrize("length", [1, 16])
@pytest.mark.parametrize("seed", range(6))
def test_rows_of_a_table_in_time(store, seed, length):
    rows = [f"{time},{time}" if time not in (1000, 1001, 2500) else f"{time}," for time in range(3000)]
    (store.root / "t.csv").write_text("\n".join(["a,b", *rows]))
    options = {"file": "t.csv", "columns": ["a", "b"], "length": length, "stride": 4 if length > 1 else 1}
    options |= {"missing": "drop", "step": 1.0}
    csv = find_dataset("csv")
    plain, drawn, again = (csv.loaded(store, options, new) for new in (None, NewSplit(seed), NewSplit(seed)))
    assert_apart(drawn.parts(), gap=length)
    assert_whole(drawn)
    assert same(drawn, again) and not same(drawn, plain)
    assert not np.isin([1000, 1001, 2500], np.concatenate([values.ravel() for values in drawn.parts().values()])).any()
    assert abs(len(drawn.test) - len(plain.test)) <= 2 and drawn.test_share == pytest.approx(0.1, abs=1e-3)
    assert drawn.left_out == ("dropped: 3 of 3,000 rows with a missing cell",)
    kept = csv.loaded(store, options, NewSplit(seed, keep_test=True))
    assert kept.share_of_test(NewSplit(seed, keep_test=True)) == 0 and kept.test.min() >= 2600
    assert_apart(kept.parts(), gap=length)


def test_too_few_rows_for_gaps(store):
    (store.root / "t.csv").write_text("\n".join(["a", *map(str, range(500))]))
    fault = r"validation has 50 of 500 rows, and not 60 in a row .*split 0: .* with 60 rows"
    with pytest.raises(DataError, match=fault):
        find_dataset("csv").loaded(store, {"file": "t.csv", "columns": ["a"], "length": 60}, NewSplit(0))


def test_shuffled_rows_are_pooled(store):
    (store.root / "t.csv").write_text("\n".join(["a", *map(str, range(500))]))
    options = {"file": "t.csv", "columns": ["a"], "shuffle": True}
    plain, drawn = (find_dataset("csv").loaded(store, options, new) for new in (None, NewSplit(0)))
    assert sizes(drawn) == sizes(plain) and drawn.checksum == plain.checksum and "pooled" in drawn.description
    assert sorted(np.concatenate([*drawn.parts().values()]).ravel()) == list(range(500))


@pytest.mark.parametrize("keep_test", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_sequences_of_an_array_in_time(store, seed, keep_test):
    events = np.arange(300, dtype=np.int16)[:, None, None].repeat(4, axis=2)
    np.savez(store.root / "s.npz", x_train=events[:271], x_test=events[271:])
    options = {"file": "s.npz", "kind": "sequence", "shape": [1, 4]}
    npz, new = find_dataset("npz"), NewSplit(seed, keep_test)
    plain, drawn = npz.loaded(store, options), npz.loaded(store, options, new)
    assert_apart(drawn.parts(), gap=1)
    assert sizes(drawn)[1:] == sizes(plain)[1:] == [27, 29] and 244 - 3 <= len(drawn.train) <= 244 - 2
    assert drawn.checksum == plain.checksum and same(drawn, npz.loaded(store, options, new)) and not same(drawn, plain)
    assert drawn.share_of_test(new) == (0 if keep_test else 29 / 300)
    assert np.array_equal(drawn.test, plain.test) == keep_test
    pooled = npz.loaded(store, options | {"shuffle": True}, new)
    assert sizes(pooled) == sizes(plain) and "pooled" in pooled.description


def test_too_few_sequences_for_gaps(store):
    np.savez(store.root / "s.npz", np.zeros((4, 1, 4), np.int16))
    options = {"file": "s.npz", "kind": "sequence", "shape": [1, 4], "shares": [0.5, 0.25, 0.25], "step": 1.0}
    with pytest.raises(DataError, match="npz: 4 events are too few for split 1, which leaves one out"):
        find_dataset("npz").loaded(store, options, NewSplit(1))


@pytest.mark.parametrize("seed", range(4))
def test_generated_waveforms(monkeypatch, seed):
    """A recording whose samples are their times, and the patient in the second channel."""

    def ramp(rng, samples):
        return np.stack([np.arange(samples), np.arange(samples)]).astype(np.int32), None

    monkeypatch.setattr(waveforms, "simulate", ramp)
    options = {"patients": 1, "windows": 20, "length": 64}
    plain, drawn = (find_dataset("waveforms").loaded(NOWHERE, options, new) for new in (None, NewSplit(seed)))
    assert sizes(drawn) == sizes(plain) == [16, 2, 2]
    assert_apart(drawn.parts(), gap=waveforms.GAP)
    assert_whole(drawn)
    assert drawn.share_of_test(NewSplit(seed)) == 0.1, "of the windows: the gaps, many times as long, are in no split"
    two = find_dataset("waveforms").loaded(NOWHERE, options | {"patients": 2, "windows": 100}, NewSplit(seed))
    assert not np.array_equal(two.test[:10], two.test[10:]), "each patient is rotated on its own"


# Data sets without new splits, and third-party ones


def test_which_data_sets_have_new_splits_is_known_without_loading():
    options = {"npz": {"file": "a", "shape": [1, 2, 2]}, "csv": {"file": "a", "columns": 1, "header": False}}
    options |= {"images": {"folder": "a", "shape": [1, 2, 2]}, "wfdb": {"records": ["a"]}}
    for name in DATASETS:
        assert find_dataset(name).split_fault(options.get(name, {})) is None, name
    for name in ("patches", "waveforms"):
        fault = find_dataset(name).split_fault({}, keep_test=True)
        assert fault is not None and "no " in fault and "leave keep_test out" in fault
        with pytest.raises(UserError, match="leave keep_test out"):
            find_dataset(name).check(NOWHERE, {}, NewSplit(0, keep_test=True))


class Theirs(Dataset):
    """Twenty sequences."""

    info = DatasetInfo(title="Theirs", kind="sequence")

    def shape(self, options):
        return (1, 4)

    def load(self, store, options):
        events = np.arange(80, dtype=np.int16).reshape(20, 1, 4)
        return Splits(events[:12], events[12:16], events[16:], None, "theirs")


@pytest.fixture
def third_party(monkeypatch):
    monkeypatch.setattr("harness.datasets.base.is_own", lambda cls: not cls.__module__.endswith("test_new_splits"))


class Exchangeable(Theirs):
    def split_fault(self, options, keep_test=False):
        return None


class Halves(Theirs):
    def load(self, store, options, new=None):
        splits = super().load(store, options)
        return splits if new is None else replace(splits, train=splits.train[::-1])


def test_third_party_sequences_have_new_splits_if_they_say_so(third_party):
    hint = "return None from split_fault if its events share nothing, or give `load` an argument `new`"
    assert hint in Theirs().split_fault({})
    for method in (Theirs().check, Theirs().loaded):
        with pytest.raises(UserError, match=r"Theirs: has one split, .* Leave `split` out of repetitions.vary"):
            method(NOWHERE, {}, NewSplit(0))
    plain, drawn = (Exchangeable().loaded(NOWHERE, {}, new) for new in (None, NewSplit(0)))
    assert sizes(drawn) == [12, 4, 4] and not same(plain, drawn)
    assert drawn.checksum == plain.checksum == plain.digest(), "data are identified by checksum and split"
    by_hand = Halves().loaded(NOWHERE, {}, NewSplit(0))
    assert by_hand.checksum == by_hand.digest() != plain.checksum and by_hand.share_of_test(NewSplit(0)) == 0.2


# Checks before a run


def test_each_split_is_checked_and_remarked_on(store, monkeypatch):
    monkeypatch.setenv("INVERTBENCH_CACHE", str(store.cache))
    images = np.random.default_rng(0).integers(0, 256, (200, 1, 2, 2), dtype=np.uint8)
    images[100:150] = images[:50]  # in any split some of these are apart
    np.savez(store.root / "a.npz", images)
    data = DataRef(label="doubles", name="npz", options={"file": "a.npz", "shape": [1, 2, 2]})
    splits = [data.model_copy(update={"split": seed}) for seed in range(3)]
    lines = []
    checksums = check_data([data, *splits], store.root, offline=True, tell=lines.append)
    assert list(checksums) == [each.arrays for each in (data, *splits)] and len(set(checksums.values())) == 1
    warned = [line for line in lines if line.startswith("warning") and "test events" in line and "training" in line]
    labels = [line.partition(":")[2].partition(": ")[0].strip() for line in warned]
    assert labels == ["doubles", *(f"doubles, split {seed}" for seed in range(3))]
    assert len({line.rpartition(": ")[2] for line in warned}) > 1, "each split has its own overlap"
    again = []
    check_data([data, *splits], store.root, offline=True, tell=again.append)
    assert again == lines, "from the cache"


def test_a_split_that_cannot_be_drawn_is_a_fault():
    data = DataRef(label="w", name="waveforms", split=1, keep_test=True)
    _, faults = examine_data([data], None, offline=True, tell=print)
    assert list(map(str, faults.values())) == [find_dataset("waveforms").split_fault({}, True)]
