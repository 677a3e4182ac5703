"""Data sets: contents of the splits, which are disjoint; wrong options, each with its value, rule and meaning."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import DataError, DataMissing, UserError
from harness.datasets import DATASETS, NewSplit, Splits, Store, find_dataset
from harness.datasets.patches import HEIGHT, WIDTH, PatchOptions, cut_patches

STORE = Store(root=None, cache=Path("no-cache"), offline=True)  # nothing installed needs either
INSTALLED = {"digits": {}, "patches": {"train": 300}, "waveforms": {"windows": 40, "patients": 2, "length": 64}}
PUBLISHED = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32), "imagenet32": (3, 32, 32), "galaxy": (3, 64, 64)}
PUBLISHED["mimic"] = (2, 1024)
RIGHT = {
    "csv": {"file": "mine.csv", "columns": ["b", "a"]},
    "npz": {"file": "mine.npz", "shape": [3, 8, 8]},
    "images": {"folder": "mine", "shape": [3, 6, 8]},
    "wfdb": {"records": ["r"], "length": 16, "gap_seconds": 0.4, "validation": 0.2, "test": 0.2},
}


@pytest.fixture(scope="module")
def loaded() -> dict[str, Splits]:
    return {name: find_dataset(name).load(STORE, options) for name, options in INSTALLED.items()}


def test_importing_the_package_imports_no_large_library():
    large = ("torch", "sklearn", "PIL", "scipy", "pooch", "requests", "wfdb", "filelock", "torchvision")
    code = f"import sys, harness.datasets; print([name for name in {large} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_registered_name_is_found():
    assert set(DATASETS) == {*INSTALLED, *PUBLISHED, *RIGHT, "sklearn_tables"}
    for name, dataset in DATASETS.items():
        assert type(find_dataset(name)) is dataset
        assert dataset.name == name
        assert dataset.info.lattice
        assert dataset.info.licence and dataset.info.source and dataset.info.how_to_get


@pytest.mark.parametrize("name", INSTALLED)
def test_splits_have_the_announced_shape_and_are_deterministic(name, loaded):
    dataset, options = find_dataset(name), INSTALLED[name]
    again = dataset.load(STORE, options).parts()
    for part, values in loaded[name].parts().items():
        assert values.shape[1:] == dataset.shape(options)
        assert np.issubdtype(values.dtype, np.integer)
        np.testing.assert_array_equal(values, again[part])


def test_all_digits_are_present_with_17_levels_and_equal_shares(loaded):
    from sklearn.datasets import load_digits

    splits = loaded["digits"]
    assert splits.levels == 17
    assert [len(values) for values in splits.parts().values()] == [1297, 250, 250]
    digits = load_digits()
    label = dict(zip((image.astype(np.uint8).tobytes() for image in digits.images), digits.target, strict=True))
    assert len(label) == 1797
    seen = [label[event.tobytes()] for values in splits.parts().values() for event in values]
    assert len(seen) == 1797
    for values in (splits.validation, splits.test):
        assert np.bincount([label[event.tobytes()] for event in values]).tolist() == [25] * 10
    assert set(np.unique(splits.train)) == set(range(17))


def test_the_stated_leak_of_writers_between_splits_of_digits_is_the_measured_one(loaded):
    from sklearn.datasets import load_digits

    place = {image.astype(np.uint8).tobytes(): index for index, image in enumerate(load_digits().images)}
    train, test = (loaded["digits"].parts()[name] for name in ("train", "test"))
    order, places = (np.array([place[image.tobytes()] for image in images]) for images in (train, test))
    seen, asked = (images.reshape(len(images), -1).astype(float) for images in (train, test))
    nearest = (np.square(seen).sum(1) - 2 * asked @ seen.T).argmin(1)
    close = np.abs(places[:, None] - order[None]) <= 130
    shares = close[np.arange(len(test)), nearest].mean(), close.mean()
    stated = "{:.0%} of test images have their nearest training image within 130 places of file order, chance {:.0%}"
    assert stated.format(*shares).replace("%", " %") in loaded["digits"].description


def numbered_photographs() -> np.ndarray:
    """Return photographs in which every pixel has a unique number, in three equal channels."""
    numbers = np.arange(2 * HEIGHT * WIDTH, dtype=np.int32).reshape(2, HEIGHT, WIDTH, 1)
    return np.repeat(numbers, 3, axis=3)


@pytest.mark.parametrize("new", [None, NewSplit(0), NewSplit(1)])
def test_patches_of_different_splits_share_no_pixel(new):
    parts = cut_patches(numbered_photographs(), PatchOptions(train=20_000), new)
    uses = [np.bincount(part[:, 0].ravel(), minlength=2 * HEIGHT * WIDTH) for part in parts]
    train, validation, test = (count > 0 for count in uses)
    assert not (train & validation).any()
    assert not (train & test).any()
    assert not (validation & test).any()
    # The train crops reach nearly all of their 60 %; validation and test patches do not overlap.
    assert 0.58 < train.mean() <= 0.6
    assert uses[1].max() == uses[2].max() == 1


def test_patches_are_whole_squares_of_both_photographs_in_channel_first_order(loaded):
    from sklearn.datasets import load_sample_images

    size = HEIGHT * WIDTH
    for part in cut_patches(numbered_photographs(), PatchOptions(train=100, validation=10, test=10)):
        corner = part[:, :, :1, :1]
        square = np.arange(32)[:, None] * WIDTH + np.arange(32)
        np.testing.assert_array_equal(part, np.broadcast_to(corner + square, part.shape))
        assert set(np.unique(part[:, 0, 0, 0] // size)) == {0, 1}
    photograph = load_sample_images().images[0]
    np.testing.assert_array_equal(loaded["patches"].validation[0], photograph[:32, 96:128].transpose(2, 0, 1))


@pytest.mark.parametrize("root", ["empty", None])
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_datasets_have_a_shape_and_instructions(name, root, tmp_path):
    dataset = find_dataset(name)
    assert dataset.shape({}) == PUBLISHED[name]
    (tmp_path / "empty").mkdir()
    store = Store(None if root is None else tmp_path / root, tmp_path / "cache", offline=True)
    for use in (dataset.check, dataset.load):
        with pytest.raises(DataMissing, match=rf"^{name}: .*data root") as caught:
            use(store, {})
        assert caught.value.exit_code == 3


def test_splits_with_wrong_levels_or_shapes_are_refused():
    good = np.zeros((2, 1, 4, 4), dtype=np.uint8)
    with pytest.raises(DataError, match=r"test split has values 0\.\.17; 17 levels are 0\.\.16"):
        Splits(good, good, np.array([0, 17], dtype=np.uint8).reshape(2, 1, 1, 1) + good, levels=17, description="")
    with pytest.raises(DataError, match="validation split is empty"):
        Splits(good, good[:0], good, levels=17, description="")
    with pytest.raises(DataError, match="they must agree"):
        Splits(good, good[:, :, :2], good, levels=17, description="")
    with pytest.raises(DataError, match="integers"):
        Splits(good / 2, good / 2, good / 2, levels=17, description="")


# Wrong options

SEQUENCE = {"shape": [2, 16], "kind": "sequence"}
NOISE = "should be one width above 0, or a list with a width or null for each channel"

FAULTS = [  # data set, options, the faulty one, its message
    ("waveforms", {"length": 0}, "length", r"waveforms: length = 0 should be greater than or equal to 16; it is"),
    ("waveforms", {"lenght": 256}, "lenght", r"no option 'lenght'; did you mean length\?"),
    ("waveforms", {"seed": True}, "seed", r"seed = True should be a valid integer"),
    ("patches", {"test": 105}, "test", r"test = 105 should be less than or equal to 104; it is .*tile"),
    ("digits", {"size": 8}, "size", r"digits: no option 'size'; "),
    ("mnist", {"root": "x"}, "root", r"mnist: no option 'root'"),
    ("mnist", {"validation": 60_000}, "validation", r"less than or equal to 59999"),
    ("cifar10", {"test": 10_001}, "test", r"should be less than or equal to 10000; it is the number of test images"),
    ("cifar10", {"validation": 0}, "validation", r"should be greater .*set apart for validation"),
    ("images", {"shape": [2, 6, 8]}, "shape", r"should be \[1, H, W\] or \[3, H, W\]"),
    ("images", {"resize": "yes"}, "resize", "should be a valid boolean"),
    ("npz", {"shape": [3, 8]}, "shape", r"should have 3 entries for kind: image"),
    ("npz", {"kind": "sequence"}, "shape", r"should have 2 entries for kind: sequence"),
    ("npz", SEQUENCE | {"pool": 2}, "pool", "should be left out: it is for kind: image"),
    (
        "npz",
        {"step": 0},
        "step",
        r"npz: step = 0 should be one number above 0, a list .*, or detect; it is the lattice",
    ),
    ("npz", {"groups": "s", "shuffle": True}, "shuffle", "should be left out with groups"),
    ("npz", {"noise": "last_digit"}, "noise", "last_digit is for csv"),
    *(
        ("npz", {"arrays": names}, "arrays", "it is the names of the arrays")
        for names in (["a"], ["a", "a"], [], [*"abcd"])
    ),
    ("npz", {"stratify": "y", "groups": "s"}, "stratify", "should be left out with groups"),
    ("npz", {"test_file": "t.npz", "shares": [0.8, 0.1, 0.1]}, "shares", "should be left out with test_file"),
    ("npz", {"validation_file": "v.npz"}, "validation_file", "should come with test_file"),
    ("csv", {"columns": ["a", "a"]}, "columns", "name nothing twice"),
    ("csv", {"columns": [1, 2], "header": True}, "header", "should be true for columns with names"),
    ("csv", {"columns": ["a", 2], "header": True}, "header", "should be true for columns with names"),
    ("csv", {"header": False}, "header", "false for numbers of columns"),
    ("csv", {"length": 4, "shuffle": True}, "length", "should be 1 with shuffle"),
    ("csv", {"shares": [0.8, 0.1, 0.2]}, "shares", "should sum to at most 1"),
    ("csv", {"shares": [0.8, 0.2]}, "shares", "it is the shares"),
    ("csv", {"step": 1, "noise": 1}, "noise", "should be left out with step"),
    *(("csv", {"noise": noise}, "noise", NOISE) for noise in (0, -1, "wide", [], [None], float("inf"), True)),
    ("csv", {"columns": None, "groups": "s", "header": False}, "header", "should be true for columns with names"),
    ("csv", {"groups": "s", "shuffle": True}, "shuffle", "should be left out with groups"),
    ("csv", {"split": "c", "groups": "d"}, "split", "should be left out with groups"),
    ("csv", {"split": "c", "shuffle": True}, "split", "should be left out with shuffle"),
    ("csv", {"test_file": "x.csv", "split": "c"}, "split", "should be left out with test_file"),
    ("csv", {"stratify": "c", "groups": "d"}, "stratify", "should be left out with groups"),
    ("csv", {"stratify": "c", "length": 8}, "length", "should be 1 with stratify, for vectors"),
    ("csv", {"validation_file": "x.csv"}, "validation_file", "should come with test_file"),
    ("csv", {"time": 3, "header": True}, "header", "true for columns with names"),
    ("wfdb", {"records": []}, "records", r"wfdb: records = \[\] "),
    ("wfdb", {"records": "r"}, "records", "records = 'r' should be a valid tuple; it is a list of WFDB records"),
    ("wfdb", {"channels": ["ABP", "ABP"]}, "channels", "name nothing twice"),
    ("wfdb", {"validation": 0.6, "test": 0.4}, "test", "test = 0.4 leaves nothing to train on beside validation"),
    ("wfdb", {"values": "physical"}, "values", "or come with split: record or folder"),
    ("mimic", {"patient": 1}, "patient", "patient = 1 should be 3000063, 3000393 or 3000397"),
]


@pytest.mark.parametrize(("name", "options", "at", "message"), FAULTS)
def test_wrong_options_are_reported_with_their_rule(name, options, at, message):
    dataset, options = find_dataset(name), RIGHT.get(name, {}) | options
    faults = dataset.option_errors(options)
    assert {option for option, _ in faults} == {at} and any(re.search(message, text) for _, text in faults)
    with pytest.raises(UserError) as caught:
        dataset.check(STORE, options)
    assert str(caught.value) == "\n".join(text for _, text in faults)


@pytest.mark.parametrize("name", RIGHT)
def test_user_datasets_name_their_required_options(name):
    needed = [option for option, field in find_dataset(name).options_model.model_fields.items() if field.is_required()]
    faults = dict(find_dataset(name).option_errors({}))
    assert needed and list(faults) == needed
    for option in needed:
        assert faults[option].startswith(f"{name}: the option {option!r} is missing; it is ")
