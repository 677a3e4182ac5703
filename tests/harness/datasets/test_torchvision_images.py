"""Image sets of torchvision by name, read from small files in torchvision's formats."""

import bz2

import numpy as np
import pytest

from harness.core.errors import DataError, DataMissing, SuiteError, UserError
from harness.datasets import Store, find_dataset
from harness.planning.settle import load_suite, settle

RNG = np.random.default_rng(0)
IMAGES = {"train": RNG.integers(0, 256, (40, 28, 28), dtype=np.uint8), "t10k": RNG.integers(0, 256, (12, 28, 28))}
FASHION = "torchvision:FashionMNIST"
SUITE = """\
suite: fashion
kind: density
layers: {conv1x1: {}}
profiles: {smoke: {datasets: {fashion: {data: "torchvision:FashionMNIST"}}}}
"""


def idx(values):
    """Return an array in the format of MNIST's files."""
    header = (0x0800 + values.ndim, *values.shape)
    return np.array(header, ">u4").tobytes() + values.astype(np.uint8).tobytes()


@pytest.fixture
def store(tmp_path):
    """Return a store whose root has a small FashionMNIST."""
    raw = tmp_path / "root" / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for part, images in IMAGES.items():
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(images))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(len(images)) % 10))
    return Store(tmp_path / "root", tmp_path / "cache", offline=True)


def same(found, expected):
    return sorted(map(bytes, found)) == sorted(image.astype(np.uint8).tobytes() for image in expected)


def test_the_images_are_those_of_the_files(store):
    dataset = find_dataset(FASHION)
    dataset.check(store, {})
    splits = dataset.load(store, {})
    assert (splits.shape, splits.levels, splits.unit) == ((1, 28, 28), 256, "bits_per_dim")
    assert [len(part) for part in splits.parts().values()] == [36, 4, 12]
    assert same([*splits.train, *splits.validation], IMAGES["train"]) and same(splits.test, IMAGES["t10k"])
    few = dataset.load(store, {"validation": 10, "train": 5, "test": 3})
    assert [len(part) for part in few.parts().values()] == [5, 10, 3]
    for options in ({"validation": 40}, {"train": 37}, {"test": 13}):
        with pytest.raises(DataError, match=r"torchvision:FashionMNIST: (train|test) holds"):
            dataset.load(store, options)


def test_a_set_in_the_root_itself(store):
    rows = RNG.integers(-1, 2, (20, 256))
    lines = "\n".join(f"{row[0] + 2} " + " ".join(f"{i + 1}:{value}" for i, value in enumerate(row)) for row in rows)
    for name in ("usps.bz2", "usps.t.bz2"):
        (store.root / name).write_bytes(bz2.compress(lines.encode()))
    splits = find_dataset("torchvision:USPS").load(store, {})
    assert splits.shape == (1, 16, 16) and same(splits.test, ((rows + 1) / 2 * 255).astype(np.uint8))


def test_changed_files_are_read_again(store):
    dataset = find_dataset(FASHION)
    before = dataset.loaded(store, {}).checksum
    path = store.root / "FashionMNIST" / "raw" / "t10k-images-idx3-ubyte"
    path.write_bytes(idx(255 - IMAGES["t10k"]))
    assert dataset.loaded(store, {}).checksum != before


def test_what_is_missing_or_damaged_is_one_message(store, tmp_path):
    for root in (None, tmp_path):
        with pytest.raises(DataMissing, match=r"FashionMNIST\(ROOT, download=True\) puts the files into a data root"):
            find_dataset(FASHION).check(Store(root, store.cache), {})
    (store.root / "FashionMNIST" / "raw" / "t10k-images-idx3-ubyte").write_bytes(b"")
    with pytest.raises(DataError, match=r"torchvision:FashionMNIST: .*torchvision cannot read it"):
        find_dataset(FASHION).check(store, {})


def test_an_unknown_set_is_refused_with_its_place_in_the_suite(tmp_path):
    for name, hint in (
        ("FashonMNIST", "did you mean FashionMNIST"),
        ("VOCDetection", "give others as a folder of images"),
    ):
        with pytest.raises(UserError, match=hint):
            find_dataset(f"torchvision:{name}")
    path = tmp_path / "fashion.yaml"
    for name in ("torchvision:COCO", "torchvision"):
        path.write_text(SUITE.replace("torchvision:FashionMNIST", name))
        with pytest.raises(SuiteError, match=r"fashion\.yaml:4:\d+: .*torchvision"):
            load_suite(path)


def test_a_suite_names_it_as_a_data_set_of_this_project(tmp_path):
    (tmp_path / "fashion.yaml").write_text(SUITE)
    suite = load_suite(tmp_path / "fashion.yaml")
    assert suite.third_party == [], "nothing is imported on trial"
    [trial] = settle(suite, "smoke", "cpu").plan()[0].trials
    assert (trial.data.name, trial.data.source) == (FASHION, None)
