"""User arrays in .npz files: splits, layouts, lattices, pooling, options, and faulty files."""

import io
import os
import tracemalloc
import zipfile

import numpy as np
import pytest
from toys import events

from harness.core.errors import DataError, DataMissing, UserError
from harness.core.settings import DataRef
from harness.datasets import Splits, Store, find_dataset
from harness.datasets._images.image_files import pool
from harness.execution.data import check_data

NPZ = find_dataset("npz")
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (60, 3, 8, 8), dtype=np.uint8)
TEST_IMAGES = RNG.integers(0, 256, (20, 3, 8, 8), dtype=np.uint8)
ADC = RNG.integers(-500, 500, (60, 2, 16))
OPTIONS = {"file": "mine.npz", "shape": [3, 8, 8]}
SEQUENCE = {"file": "mine.npz", "shape": [2, 16], "kind": "sequence"}


def read(store, options, **arrays) -> Splits:
    """Write these arrays to a file and return the splits that the data set reads from it."""
    np.savez(store.root / "mine.npz", **arrays)
    NPZ.check(store, options)
    return NPZ.load(store, options)


def load(store, options=OPTIONS, **arrays) -> Splits:
    """Return the splits of these arrays, and of images in place of x_train and x_test."""
    return read(store, options, **({"x_train": IMAGES, "x_test": TEST_IMAGES} | arrays))


def test_images_are_unchanged_and_a_tenth_of_train_is_held_out(store):
    splits = load(store)
    assert (splits.levels, splits.shape, splits.train.dtype) == (256, (3, 8, 8), np.uint8)
    assert [len(part) for part in splits.parts().values()] == [54, 6, 20]
    assert events(splits.train, splits.validation) == events(IMAGES)
    np.testing.assert_array_equal(splits.test, TEST_IMAGES)
    assert isinstance(splits.train, np.memmap)
    assert splits.description == "mine.npz: images 3x8x8, 256 levels; split as stated, validation from train by seed 0"
    assert splits.steps is None and splits.no_floor is None and len(splits.checksum) == 64


@pytest.mark.parametrize("name", ["x", "arr_0"])
def test_one_array_is_split_by_shares(store, name):
    images = read(store, OPTIONS | {"shares": [0.5, 0.2, 0.3]}, **{name: IMAGES})
    assert [len(part) for part in images.parts().values()] == [30, 12, 18]
    assert events(*images.parts().values()) == events(IMAGES)
    assert images.description.endswith("are the shares 0.5, 0.2, 0.3, by seed 0")
    kept = read(store, OPTIONS | {"shuffle": False}, **{name: IMAGES})
    np.testing.assert_array_equal(np.concatenate(list(kept.parts().values())), IMAGES)
    assert [len(part) for part in kept.parts().values()] == [48, 6, 6] and "in order" in kept.description
    few = read(store, SEQUENCE | {"shares": [0.2, 0.1, 0.1]}, **{name: ADC})
    for part, expected in zip(few.parts().values(), (ADC[:12], ADC[12:18], ADC[18:24]), strict=True):
        np.testing.assert_array_equal(part, expected)
    assert (few.train != read(store, SEQUENCE | {"shuffle": True}, **{name: ADC}).train[:12]).any()


def test_arrays_by_name_and_rows_of_a_matrix_as_vectors(store):
    rows, vectors = np.random.default_rng(0).standard_normal((100, 3)), SEQUENCE | {"shape": [3, 1]}
    both = {"X": rows, "y": np.arange(100)}
    alone = read(store, vectors | {"array": "X"}, **both)
    np.testing.assert_array_equal(alone.train[:, :, 0], rows[: len(alone.train)])
    parts = {"a": rows[:70], "b": rows[70:80], "c": rows[80:], "labels": np.arange(3)}
    splits = read(store, vectors | {"arrays": ["a", "b", "c"]}, **parts)
    np.testing.assert_array_equal(splits.test[:, :, 0], rows[80:])
    np.testing.assert_array_equal(splits.validation[:, :, 0], rows[70:80])
    assert len(read(store, vectors | {"arrays": ["a", "c"]}, **parts).validation) == 7  # a tenth of train
    with pytest.raises(DataError, match="array: NAME"):
        read(store, vectors, **both)
    with pytest.raises(DataError, match="no array 'Z'"):
        read(store, vectors | {"array": "Z"}, **both)


def test_a_file_beside_the_suite_is_found_first(store, tmp_path, monkeypatch):
    (tmp_path / "suites").mkdir()
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "suites" / "mine.npz", x=IMAGES)
    np.savez(store.root / "mine.npz", x=TEST_IMAGES)
    beside = NPZ.located(OPTIONS, tmp_path / "suites")
    assert beside["file"] == "./suites/mine.npz", "a trial is the same wherever the project's folder is"
    for root in (store.root, None):
        assert len(NPZ.load(Store(root, store.cache), beside).train) == 48
    assert len(NPZ.load(store, NPZ.located(OPTIONS, tmp_path)).train) == 16, "the data root"
    monkeypatch.chdir(store.root)
    assert NPZ.located(OPTIONS, tmp_path / "suites")["file"] == str(tmp_path / "suites" / "mine.npz")


def test_fewer_events_leave_validation_unchanged(store):
    few, all_of_them = load(store, OPTIONS | {"train": 10, "test": 5}), load(store)
    np.testing.assert_array_equal(few.validation, all_of_them.validation)
    assert set(events(few.train)) < set(events(all_of_them.train))
    assert set(events(few.test)) < set(events(all_of_them.test))
    assert (len(few.train), len(few.test)) == (10, 5)
    with_x_val = load(store, OPTIONS | {"validation": 4}, x_val=TEST_IMAGES[:7])
    assert set(events(with_x_val.validation)) < set(events(TEST_IMAGES[:7]))


def test_channels_last_and_grey_without_a_channel_axis(store):
    last = load(store, OPTIONS | {"layout": "channels_last"}, x_train=np.moveaxis(IMAGES, 1, -1),
                x_test=np.moveaxis(TEST_IMAGES, 1, -1))  # fmt: skip
    np.testing.assert_array_equal(last.test, TEST_IMAGES)
    assert events(last.train, last.validation) == events(IMAGES)
    for layout in ("channels_first", "channels_last"):
        options = OPTIONS | {"shape": [1, 8, 8], "layout": layout}
        grey = load(store, options, x_train=IMAGES[:, 0], x_test=TEST_IMAGES[:, 0])
        np.testing.assert_array_equal(grey.test, TEST_IMAGES[:, :1])
    times = ADC.swapaxes(1, 2)
    steps = load(store, SEQUENCE | {"layout": "channels_last"}, x_train=times, x_test=times[:9])
    np.testing.assert_array_equal(steps.test, ADC[:9])


def test_fortran_order_and_foreign_byte_order_are_read_correctly(store):
    splits = load(store, x_train=np.asfortranarray(IMAGES), x_test=np.asfortranarray(TEST_IMAGES))
    np.testing.assert_array_equal(splits.test, TEST_IMAGES)
    big = load(store, SEQUENCE, x_train=ADC.astype(">i2"), x_test=ADC[:9].astype(">i2"))
    np.testing.assert_array_equal(big.test, ADC[:9])
    assert big.test.dtype.isnative


def test_floats_on_a_lattice_become_counts_with_their_step(store):
    splits = load(store, x_train=(IMAGES / 255).astype("f4"), x_test=(TEST_IMAGES / 255).astype("f4"))
    np.testing.assert_array_equal(splits.test, TEST_IMAGES)
    assert (splits.levels, splits.train.dtype) == (256, np.uint8)
    assert "256 levels, one level is 0.00392157 in the file" in splits.description
    gain = np.array([[0.0005], [0.0502]])
    sequences = load(store, SEQUENCE, x_train=ADC * gain, x_test=ADC[:9] * gain)
    np.testing.assert_array_equal(sequences.test, ADC[:9])
    assert [unit for _, unit in sequences.steps] == ["units of the file"] * 2
    assert [size for size, _ in sequences.steps] == pytest.approx([0.0005, 0.0502])
    assert (sequences.levels, sequences.lattice, sequences.no_floor) == (None, True, None)


def test_sequences_are_held_out_at_the_end_of_train(store):
    splits = load(store, SEQUENCE | {"validation": 5, "train": 20, "test": 4}, x_train=ADC, x_test=ADC[:9])
    np.testing.assert_array_equal(splits.validation, ADC[55:])
    np.testing.assert_array_equal(splits.train, ADC[35:55])
    np.testing.assert_array_equal(splits.test, ADC[:4])


def test_pooling_rounds_without_overflow(store):
    white = np.full((60, 3, 8, 8), 255, np.uint8)
    white[:, 0, 0, :2] = [[254, 254]]  # mean 254.5, rounded up
    white[:, 1, 0, 0] = 0  # mean 191.25
    splits = load(store, OPTIONS | {"shape": [3, 4, 4], "pool": 2}, x_train=white, x_test=TEST_IMAGES)
    assert splits.train.max() == 255 and splits.train.dtype == np.uint8
    assert splits.train[0, :, 0, 0].tolist() == [255, 191, 255]
    means = TEST_IMAGES.reshape(20, 3, 4, 2, 4, 2).mean((3, 5))
    np.testing.assert_array_equal(splits.test, np.floor(means + 0.5))
    assert "means of 2 x 2 pixels" in splits.description
    np.testing.assert_array_equal(pool(np.arange(9, dtype=np.int16).reshape(3, 3), 3), [[4]])


def test_logit_without_levels_is_refused_before_training(store, monkeypatch):
    monkeypatch.setenv("INVERTBENCH_CACHE", str(store.cache))
    noise = np.random.default_rng(0).normal(size=(60, 3, 8, 8))
    np.savez(store.root / "mine.npz", x_train=noise, x_test=noise[:20] + 1)
    data = DataRef(label="mine", name="npz", options=OPTIONS, preprocessing="logit")
    with pytest.raises(UserError, match=r"^mine: preprocessing 'logit' is for images on levels") as caught:
        check_data([data], store.root, offline=True)
    assert caught.value.exit_code == 2


def test_a_missing_file_and_a_folder_are_refused(store):
    with pytest.raises(DataMissing, match=r"npz: .*mine\.npz: no such file.*option `file`"):
        NPZ.check(store, OPTIONS)
    with pytest.raises(DataMissing, match="data root, and none is named"):
        NPZ.check(Store(None, store.cache), OPTIONS)
    (store.root / "mine.npz").mkdir()
    with pytest.raises(DataError, match=r"mine\.npz: cannot be read \(it is a folder\)"):
        NPZ.check(store, OPTIONS)


def test_a_file_of_one_array_is_mapped_and_read_in_blocks(store):
    images = np.random.default_rng(0).integers(0, 256, (20_000, 3, 32, 32), dtype=np.uint8)  # 61 MB
    np.save(store.root / "mine.npy", images)
    size, first = images.nbytes, events(images[:16_000])
    options = {"file": "mine.npy", "shape": [3, 32, 32], "shuffle": False}
    del images
    tracemalloc.start()
    try:
        NPZ.check(store, options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size / 2 and events(NPZ.load(store, options).train) == first


# Faults: one message for each, and nothing of it in the cache

BOTH = {"x_train": IMAGES, "x_test": TEST_IMAGES}
SIZES = {"validation": 20, "train": 41}
WRONG_ARRAYS = [  # arrays, options, message
    ({"x_train": IMAGES, "y": IMAGES}, {}, r"has no array 'x_test'; it has x_train, y"),
    ({"a": IMAGES, "b": IMAGES}, {}, "has the arrays a, b; say which hold events"),
    (BOTH, {"shares": [0.8, 0.1, 0.1]}, "has a split already; `shares` is for one array"),
    ({"x": IMAGES}, {"test": 5}, "has one array, whose splits have `shares`; leave out train"),
    ({"x": IMAGES[:4]}, {}, r"4 events in the shares \[0\.8, 0\.1, 0\.1\] leave none for test"),
    (BOTH | {"x_train": np.moveaxis(IMAGES, 1, -1)}, {}, r"\(8, 8, 3\); .*\(3, 8, 8\); layout: channels_last would"),
    (BOTH, {"shape": [3, 4, 4]}, r"asks for \(3, 4, 4\)"),
    (BOTH, {"pool": 2}, r"with layout: channels_first and pool: 2 asks for \(3, 16, 16\)"),
    (BOTH | {"x_train": IMAGES[0, 0, 0]}, {}, r"x_train has shape \(8,\); the first axis"),
    (BOTH | {"x_train": IMAGES > 9}, {}, "x_train holds bool; it must hold integers or"),
    (BOTH | {"x_train": np.zeros((60, 3), "u1,u1")}, {}, r"x_train holds \[\('f0', 'u1'\)"),
    (BOTH | {"x_test": TEST_IMAGES / 255}, {}, r"train uint8 .*, test float64 .*; the events of all arrays"),
    (BOTH, {"step": [1, 1]}, "2 are stated for 3 channels"),
    (BOTH, {"step": 2}, "is not a multiple of the step 2"),
    (BOTH, {"step": 0.5}, "is finer .* step 1; state"),
    ({name: values / 255 for name, values in BOTH.items()}, {"step": 0.0001}, r"finer .* lattice of step 0\.00392"),
    (BOTH, SIZES, "40 events are there for train; 41 asked for"),
    (BOTH, {"validation": 60}, "0 events are there for train; at least 1"),
    (BOTH, {"test": 21}, "20 events are there for test; 21 asked"),
    (BOTH | {"x_test": TEST_IMAGES[:0]}, {}, "0 events are there for test; at least 1 asked for"),
    ({name: values[:0] / 255 for name, values in BOTH.items()}, {}, "train and test are empty"),
]


@pytest.mark.parametrize(("arrays", "options", "message"), WRONG_ARRAYS)
def test_wrong_arrays_are_named_and_leave_the_cache_usable(arrays, options, message, store):
    np.savez(store.root / "mine.npz", **arrays)
    with pytest.raises(DataError, match=message) as caught:
        NPZ.check(store, OPTIONS | options)
    assert str(caught.value).startswith(f"npz: {store.root / 'mine.npz'}: ")
    assert caught.value.exit_code == 3 and "\n" not in str(caught.value)
    assert load(store).levels == 256


def test_events_with_a_missing_value_are_dropped_on_request_and_counted(store):
    values, held_out = IMAGES / 255, TEST_IMAGES / 255
    expected = load(store, x_train=np.delete(values, [9, 30], axis=0), x_test=held_out)
    values[9, 1, 2, 3] = values[30, 0, 0, 0] = np.nan
    splits = load(store, OPTIONS | {"missing": "drop"}, x_train=values, x_test=held_out)
    assert splits.checksum == expected.checksum and splits.levels == expected.levels
    assert splits.left_out == (f"dropped: 2 of {len(values)} events of train with a missing value",)
    values[31, 0, 0, 0] = np.inf  # not missing, but wrong
    with pytest.raises(DataError, match=r"train: inf at \[31, 0, 0, 0\] is not finite"):
        load(store, OPTIONS | {"missing": "drop"}, x_train=values, x_test=held_out)
    with pytest.raises(DataError, match="have no event without a missing value"):
        load(store, OPTIONS | {"missing": "drop"}, x_train=values * np.nan, x_test=held_out * np.nan)


def test_reading_in_blocks_gives_the_same_arrays_and_messages(store, monkeypatch):
    whole = load(store).checksum
    floats = load(store, x_train=IMAGES / 255, x_test=TEST_IMAGES / 255).checksum
    assert floats == whole
    monkeypatch.setattr("harness.datasets.arrays.BLOCK", 7 * IMAGES[0].nbytes)
    NPZ.check(Store(store.root, store.cache / "another"), OPTIONS)
    assert load(store).checksum == load(store, x_train=IMAGES / 255, x_test=TEST_IMAGES / 255).checksum == whole
    values = IMAGES / 255
    values[41, 1, 2, 3], values[50:53, 0, 0, 0] = np.inf, np.nan
    with pytest.raises(DataError, match=r"train: inf at \[41, 1, 2, 3\] is not finite; drop"):
        load(store, x_train=values, x_test=TEST_IMAGES / 255)
    values[41, 1, 2, 3], values[50:53, 0, 0, 0] = 0.1234, 0
    with pytest.raises(DataError, match=r"event 41: 0\.1234 is not a multiple"):
        load(store, OPTIONS | {"step": 1 / 255}, x_train=values, x_test=TEST_IMAGES / 255)


def test_object_arrays_are_refused_without_unpickling(store, tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    trapped = np.empty((60, 1), object)
    trapped[:] = Trap()
    with pytest.raises(DataError, match=r"x_train: cannot be read .*Object arrays"):
        load(store, x_train=trapped)
    assert not (tmp_path / "sprung").exists()


def member_of(name: str, content: bytes):
    """Return a function that replaces the content of one member of an archive."""

    def change(whole: bytes) -> bytes:
        target = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(target, "w") as new:
            for member in old.namelist():
                new.writestr(member, content if member == name else old.read(member))
        return target.getvalue()

    return change


def flipped(whole: bytes) -> bytes:
    """Return the archive with one bit of the last test image flipped, so that its checksum is wrong."""
    at = whole.rindex(TEST_IMAGES[-1].tobytes())
    return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]


def saved(array) -> bytes:
    target = io.BytesIO()
    np.save(target, array)
    return target.getvalue()


STORED = saved(TEST_IMAGES)
DAMAGE = {
    "text": (lambda whole: b"x_train,x_test\n1,2\n", r"mine\.npz: cannot be read .*it must be an \.npz or \.npy file"),
    "truncated": (lambda whole: whole[: len(whole) // 2], r"mine\.npz: cannot be read \(File is not a zip file\)"),
    "a bit flipped": (flipped, r"x_test: cannot be read \(Bad CRC-32 for file 'x_test\.npy'\)"),
    "an array cut short": (member_of("x_test.npy", STORED[:-9]), r"x_test: cannot be read"),
    "a wrong header": (member_of("x_test.npy", STORED.replace(b"shape", b"sharp")), "x_test: cannot be read"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_archive_is_named_and_leaves_the_cache_usable(name, store):
    change, message = DAMAGE[name]
    path = store.root / "mine.npz"
    np.savez(path, **BOTH)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=message) as caught:
        NPZ.check(store, OPTIONS)
    assert str(caught.value).startswith(f"npz: {store.root / 'mine.npz'}: ") and "\n" not in str(caught.value)
    np.testing.assert_array_equal(load(store).test, TEST_IMAGES)


def test_all_splits_share_one_lattice(store):
    even = IMAGES.astype(np.int16) // 2 * 2
    assert load(store, x_train=even, x_test=TEST_IMAGES.astype(np.int16) // 2 * 2).levels == 128
    odd = load(store, x_train=even, x_test=TEST_IMAGES.astype(np.int16))
    np.testing.assert_array_equal(odd.test, TEST_IMAGES)
    assert odd.levels == 256
