"""Faulty .npz files: one message for each fault, and nothing of it in the cache."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import DataError
from harness.datasets import Splits, Store, find_dataset

NPZ = find_dataset("npz")
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (60, 3, 8, 8), dtype=np.uint8)
TEST_IMAGES = RNG.integers(0, 256, (20, 3, 8, 8), dtype=np.uint8)
OPTIONS = {"file": "mine.npz", "shape": [3, 8, 8]}


def load(store, options=OPTIONS, **arrays) -> Splits:
    """Write these arrays to a file and return the splits that the data set reads from it."""
    np.savez(store.root / "mine.npz", **({"x_train": IMAGES, "x_test": TEST_IMAGES} | arrays))
    NPZ.check(store, options)
    return NPZ.load(store, options)


BOTH = {"x_train": IMAGES, "x_test": TEST_IMAGES}
SIZES = {"validation": 20, "train": 41}
WRONG_ARRAYS = [  # arrays, options, message
    ({"x_train": IMAGES, "y": IMAGES}, {}, r"has no array 'x_test'; it has x_train, y"),
    ({"a": IMAGES, "b": IMAGES}, {}, "has the arrays a, b; say which hold events"),
    (BOTH, {"shares": [0.8, 0.1, 0.1]}, "there is a split already"),
    ({"x": IMAGES}, {"test": 5}, "has one array, whose splits have `shares`; leave out train"),
    ({"x": IMAGES[:4]}, {}, r"4 events in the shares \[0\.8, 0\.1, 0\.1\] leave none for test"),
    (BOTH | {"x_train": np.moveaxis(IMAGES, 1, -1)}, {}, r"\(8, 8, 3\); .*\(3, 8, 8\); layout: channels_last would"),
    (BOTH, {"shape": [3, 4, 4]}, r"asks for \(3, 4, 4\)"),
    (BOTH, {"pool": 2}, r"with layout: channels_first and pool: 2 asks for \(3, 16, 16\)"),
    (BOTH | {"x_train": IMAGES[0, 0, 0]}, {}, r"x_train has shape \(8,\); the first axis"),
    (BOTH | {"x_train": IMAGES > 9}, {}, "x_train holds bool; it must hold integers or"),
    (BOTH | {"x_train": IMAGES * 1j}, {}, "x_train holds complex128"),
    (BOTH | {"x_train": IMAGES.astype("U")}, {}, "x_train holds <U"),
    (BOTH | {"x_train": np.zeros((60, 3), "u1,u1")}, {}, r"x_train holds \[\('f0', 'u1'\)"),
    (BOTH | {"x_test": TEST_IMAGES / 255}, {}, "x_train uint8, x_test float64; all arrays"),
    (BOTH, {"levels": 17}, "is beyond the 17 levels"),
    (BOTH, {"step": 2}, "is not a multiple of the step 2"),
    (BOTH, {"step": 0.5}, "is finer .* step 1; state"),
    ({name: values / 255 for name, values in BOTH.items()}, {"step": 0.0001}, r"finer .* lattice of step 0\.00392"),
    (BOTH, SIZES, "x_train holds 60 events; 20 of validation and 41 of train are more"),
    (BOTH, {"validation": 60}, "and all others of train are more"),
    (BOTH, {"test": 21}, "x_test holds 20 events; 21 asked"),
    (BOTH | {"x_test": TEST_IMAGES[:0]}, {}, "x_test holds 0 events; at least 1 asked for"),
    ({name: values[:0] / 255 for name, values in BOTH.items()}, {}, "x_train and x_test are empty"),
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
    assert splits.left_out == (f"dropped: 2 of {len(values)} events of x_train with a missing value",)
    values[31, 0, 0, 0] = held_out[1, 0, 0, 0] = np.inf  # not missing, but wrong; all arrays are in one message
    with pytest.raises(DataError, match=r"(?s)x_train: 1 values are not .*x_test: 1 values are not"):
        load(store, OPTIONS | {"missing": "drop"}, x_train=values, x_test=held_out)
    with pytest.raises(DataError, match="have no event without a missing value"):
        load(store, OPTIONS | {"missing": "drop"}, x_train=values * np.nan, x_test=held_out * np.nan)


def test_reading_in_blocks_gives_the_same_arrays_and_messages(store, monkeypatch):
    whole = load(store).checksum
    floats = load(store, x_train=IMAGES / 255, x_test=TEST_IMAGES / 255).checksum
    assert floats == whole
    monkeypatch.setattr("harness.datasets._values.npz_arrays.BLOCK", 7 * IMAGES[0].nbytes)
    NPZ.check(Store(store.root, store.cache / "another"), OPTIONS)
    assert load(store).checksum == load(store, x_train=IMAGES / 255, x_test=TEST_IMAGES / 255).checksum == whole
    values = IMAGES / 255
    values[41, 1, 2, 3], values[50:53, 0, 0, 0] = np.inf, np.nan
    with pytest.raises(DataError, match=r"x_train: 4 values are not finite, the first inf at \[41, 1, 2, 3\]; drop"):
        load(store, x_train=values, x_test=TEST_IMAGES / 255)
    values[41, 1, 2, 3], values[50:53, 0, 0, 0] = 0.1234, 0
    with pytest.raises(DataError, match=r"x_train, event 41: 0\.1234 is not a multiple"):
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


def rewrite(path: Path, change) -> None:
    path.write_bytes(change(path.read_bytes()))


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
    "text": (lambda whole: b"x_train,x_test\n1,2\n", r"mine\.npz: cannot be read \(it has the signature of neither"),
    "empty": (lambda whole: b"", r"mine\.npz: cannot be read"),
    "truncated": (lambda whole: whole[: len(whole) // 2], r"mine\.npz: cannot be read \(File is not a zip file\)"),
    "a bit flipped": (flipped, r"x_test: cannot be read \(Bad CRC-32 for file 'x_test\.npy'\)"),
    "an array cut short": (member_of("x_test.npy", STORED[:-9]), r"x_test: cannot be read"),
    "no header": (member_of("x_test.npy", b"abc"), "x_test: cannot be read"),
    "a wrong header": (member_of("x_test.npy", STORED.replace(b"shape", b"sharp")), "x_test: cannot be read"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_archive_is_named_and_leaves_the_cache_usable(name, store):
    change, message = DAMAGE[name]
    np.savez(store.root / "mine.npz", x_train=IMAGES, x_test=TEST_IMAGES)
    rewrite(store.root / "mine.npz", change)
    with pytest.raises(DataError, match=message) as caught:
        NPZ.check(store, OPTIONS)
    assert str(caught.value).startswith(f"npz: {store.root / 'mine.npz'}: ") and "\n" not in str(caught.value)
    np.testing.assert_array_equal(load(store).test, TEST_IMAGES)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_refused(store):
    np.savez(store.root / "mine.npz", x_train=IMAGES, x_test=TEST_IMAGES)
    with zipfile.ZipFile(store.root / "mine.npz", "a") as archive:
        archive.writestr("x_train.npy", STORED)
    with pytest.raises(DataError, match=r"mine\.npz: has two members x_train\.npy; which one is meant is unknown"):
        NPZ.check(store, OPTIONS)


def test_arrays_larger_than_the_memory_are_refused(store, monkeypatch):
    monkeypatch.setattr("harness.datasets._values.npz_arrays.available_memory", lambda: 20_000)
    with pytest.raises(DataError, match=r"x_train unpacks to 11 KiB, more than 50% of .* memory; .*numpy\.save"):
        load(store)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_damage_in_compressed_arrays_is_detected(dtype, store):
    path = store.root / "mine.npz"
    np.savez_compressed(path, x_train=IMAGES.astype(dtype), x_test=TEST_IMAGES.astype(dtype))
    rewrite(path, lambda whole: whole[:3000] + bytes(200) + whole[3200:])
    with pytest.raises(DataError, match=r"x_train: cannot be read"):
        NPZ.check(store, OPTIONS)
