"""User arrays in .npz files: splits, layouts, lattices, pooling and options."""

import tracemalloc

import numpy as np
import pytest

from harness.cli.parser import main
from harness.core.errors import DataError, DataMissing, UserError
from harness.datasets import Splits, Store, find_dataset
from harness.datasets._images.image_files import pool

NPZ = find_dataset("npz")
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (60, 3, 8, 8), dtype=np.uint8)
TEST_IMAGES = RNG.integers(0, 256, (20, 3, 8, 8), dtype=np.uint8)
ADC = RNG.integers(-500, 500, (60, 2, 16))
OPTIONS = {"file": "mine.npz", "shape": [3, 8, 8]}
SEQUENCE = {"file": "mine.npz", "shape": [2, 16], "kind": "sequence"}


def load(store, options=OPTIONS, **arrays) -> Splits:
    """Write these arrays to a file and return the splits that the data set reads from it."""
    np.savez(store.root / "mine.npz", **({"x_train": IMAGES, "x_test": TEST_IMAGES} | arrays))
    NPZ.check(store, options)
    return NPZ.load(store, options)


def events(*parts) -> list[bytes]:
    return sorted(event.tobytes() for part in parts for event in part)


def test_images_are_unchanged_and_a_tenth_of_train_is_held_out(store):
    splits = load(store)
    assert (splits.levels, splits.shape, splits.train.dtype) == (256, (3, 8, 8), np.uint8)
    assert [len(part) for part in splits.parts().values()] == [54, 6, 20]
    assert events(splits.train, splits.validation) == events(IMAGES)
    np.testing.assert_array_equal(splits.test, TEST_IMAGES)
    assert isinstance(splits.train, np.memmap)
    assert splits.description == "mine.npz: images 3x8x8, 256 levels; validation from x_train, by seed 0"
    assert splits.steps is None and splits.no_floor is None and len(splits.checksum) == 64


def one_array(store, name, values, options) -> Splits:
    """Write one array and return the splits that the data set makes of it."""
    np.savez(store.root / "mine.npz", **{name: values})
    NPZ.check(store, options)
    return NPZ.load(store, options)


@pytest.mark.parametrize("name", ["x", "arr_0"])
def test_one_array_is_split_by_shares(store, name):
    images = one_array(store, name, IMAGES, OPTIONS | {"shares": [0.5, 0.2, 0.3]})
    assert [len(part) for part in images.parts().values()] == [30, 12, 18]
    assert events(*images.parts().values()) == events(IMAGES)
    assert images.description.endswith(f"are the shares 0.5, 0.2, 0.3 of {name}, by seed 0")
    kept = one_array(store, name, IMAGES, OPTIONS | {"shuffle": False})
    np.testing.assert_array_equal(np.concatenate(list(kept.parts().values())), IMAGES)
    assert [len(part) for part in kept.parts().values()] == [48, 6, 6] and "in order" in kept.description
    few = one_array(store, name, ADC, SEQUENCE | {"shares": [0.2, 0.1, 0.1]})
    for part, expected in zip(few.parts().values(), (ADC[:12], ADC[12:18], ADC[18:24]), strict=True):
        np.testing.assert_array_equal(part, expected)
    assert (few.train != one_array(store, name, ADC, SEQUENCE | {"shuffle": True}).train[:12]).any()


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
    steps = load(
        store, SEQUENCE | {"layout": "channels_last"}, x_train=ADC.swapaxes(1, 2), x_test=ADC[:9].swapaxes(1, 2)
    )
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


def test_all_splits_share_one_lattice(store):
    even = IMAGES.astype(np.int16) // 2 * 2
    assert load(store, x_train=even, x_test=TEST_IMAGES.astype(np.int16) // 2 * 2).levels == 128
    odd = load(store, x_train=even, x_test=TEST_IMAGES.astype(np.int16))
    np.testing.assert_array_equal(odd.test, TEST_IMAGES)
    assert odd.levels == 256


def test_sequences_are_held_out_at_the_end_of_train(store):
    splits = load(store, SEQUENCE | {"validation": 5, "train": 20, "test": 4}, x_train=ADC, x_test=ADC[:9])
    np.testing.assert_array_equal(splits.validation, ADC[55:])
    np.testing.assert_array_equal(splits.train, ADC[35:55])
    np.testing.assert_array_equal(splits.test, ADC[:4])


def test_values_on_no_lattice_have_no_noise_and_no_floor(store):
    from harness.core.settings import DataRef
    from harness.pipeline.pipeline import Pipeline

    values = np.random.default_rng(0).normal(size=(400, 2, 16)).astype("f4")
    splits = load(store, SEQUENCE, x_train=values, x_test=values[:9] + 1)
    assert not splits.lattice and splits.levels is None and splits.steps is None
    assert splits.no_floor == "the values lie on no lattice; no noise is added to them"
    np.testing.assert_array_equal(splits.test, values[:9] + 1)
    pipeline = Pipeline(splits, DataRef(label="mine", name="npz"))
    assert pipeline.floor() is None and not pipeline.dequantises


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


@pytest.mark.parametrize(
    ("options", "at", "message"),
    [
        ({"shape": [3, 8]}, "shape", r"should have 3 entries for kind: image"),
        ({"shape": [3, 8, 8], "kind": "sequence"}, "shape", r"should have 2 entries for kind: sequence"),
        ({"shape": [2, 16], "kind": "sequence", "levels": 9}, "levels", "should be left out: it is for kind: image"),
        ({"shape": [2, 16], "kind": "sequence", "pool": 2}, "pool", "should be left out: it is for kind: image"),
        ({"step": 0}, "step", r"npz: step = 0 should be one number above 0, a list .*, or detect; it is the lattice"),
        ({"step": "half"}, "step", "step = 'half' should be one number above 0"),
        ({"step": [0.1, 0.2]}, "step", "for 1 channel;"),
        ({"shape": [2, 16], "kind": "sequence", "step": [1, 2, 3]}, "step", "for 2 channels"),
        ({"shape": [0, 8, 8]}, "shape", "greater than or equal to 1"),
        ({"layout": "last"}, "layout", "'channels_first' or 'channels_last'"),
        ({"levels": 1}, "levels", "greater than or equal to 2"),
        ({"test": 0}, "test", "greater than or equal to 1"),
    ],
)
def test_wrong_options_are_refused_before_any_file_is_read(options, at, message, store):
    options = OPTIONS | options
    assert [name for name, _ in NPZ.option_errors(options)] == [at]
    with pytest.raises(UserError, match=message):
        NPZ.check(store, options)


SUITE = """\
suite: own
kind: density
title: Own data
layers: {conv1x1: {}}
training: {learning_rate: 1e-3, steps: 1, batch_size: 8, evaluate_every: 1}
flow: {levels: 1, steps: 1, width: 4}
profiles:
  quick:
    datasets:
      mine: {data: npz, preprocessing: logit, options: {file: mine.npz, shape: [2, 16], kind: sequence}}
"""


@pytest.fixture
def command(store, monkeypatch):
    """Return the arguments that run a suite in the root, of which some texts are replaced."""
    monkeypatch.setenv("INVERTBENCH_CACHE", str(store.cache))
    monkeypatch.setenv("INVERTBENCH_KERNELS", "off")  # the empty cache has no kernels, and a build takes a minute

    def arguments(**texts: str) -> list[str]:
        suite, content = store.root / "own.yaml", SUITE
        for old, new in texts.items():
            content = content.replace({"logit": "preprocessing: logit, ", "form": "[2, 16], kind: sequence"}[old], new)
        suite.write_text(content)
        return ["run", str(suite), "--data", str(store.root), "--out", str(store.root / "out")]

    return arguments


def test_a_suite_is_checked_against_the_options(command, capsys):
    assert main(command()) == 2
    assert ":10:40: mine: preprocessing: logit is for pixels, and npz holds sequences" in capsys.readouterr().err
    assert main(command(logit="", form="[2], kind: sequence")) == 2
    assert ":10:58: npz: shape = [2] should have 2 entries for kind: sequence" in capsys.readouterr().err


def test_wrong_data_make_the_command_exit_with_3_and_one_line(store, command, capsys):
    assert main(command(logit="")) == 3
    assert "mine.npz: no such file" in capsys.readouterr().err
    np.savez(store.root / "mine.npz", x_train=ADC[:, :, :9], x_test=ADC)
    assert main(command(logit="")) == 3
    error = capsys.readouterr().err
    assert "x_train holds events of shape (2, 9)" in error and error.count("\n") == 1


@pytest.mark.system
def test_changed_data_make_a_trial_run_again(store, command, capsys):
    """The file name is the same, its images are not: results of both must never be averaged."""
    run = command(logit="", form="[3, 8, 8]")
    np.savez(store.root / "mine.npz", x_train=IMAGES, x_test=TEST_IMAGES)
    assert main(run) == 0
    first = capsys.readouterr().out
    assert main(run) == 0 and "nothing to run" in capsys.readouterr().out
    np.savez(store.root / "mine.npz", x_train=255 - IMAGES, x_test=TEST_IMAGES)
    assert main(run) == 0
    second = capsys.readouterr().out
    assert "its data have changed since the last run here" in second
    assert first[first.index("SHA-256") :][:30] != second[second.index("SHA-256") :][:30]


def test_logit_without_levels_is_refused_before_training(store, command, capsys):
    noise = np.random.default_rng(0).normal(size=(60, 3, 8, 8))
    np.savez(store.root / "mine.npz", x_train=noise, x_test=noise[:20] + 1)
    assert main(command(form="[3, 8, 8]")) == 2
    error = capsys.readouterr().err
    assert error.startswith("mine: preprocessing 'logit' is for images on levels") and error.count("\n") == 1
    assert not (store.root / "out" / "own" / "records").exists()


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


def test_real_images_load_in_full(data_root, tmp_path):
    store = Store(data_root, tmp_path / "cache", offline=True)
    for file, side, train, test in (
        ("cifar10-subset.npz", 32, 8068, 1017),
        ("galaxy-zoo-64.npz", 64, 480, 111),
        ("tiny-imagenet-32.npz", 32, 8000, 2000),
    ):
        splits = NPZ.load(store, {"file": file, "shape": [3, side, side], "layout": "channels_last"})
        with np.load(data_root / file) as arrays:
            original = {key: np.moveaxis(arrays[key], -1, 1) for key in ("x_train", "x_test")}
        assert (len(splits.train) + len(splits.validation), len(splits.test)) == (train, test)
        np.testing.assert_array_equal(splits.test, original["x_test"])
        assert events(splits.train, splits.validation) == events(original["x_train"])
