"""ImageNet 32x32 in both forms, from artificial files: streaming, splits, and messages for damaged files."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import DataError, DataMissing
from harness.datasets import Splits, find_dataset

IMAGENET = find_dataset("imagenet32")
TRAIN = np.random.default_rng(0).integers(0, 256, (75, 3, 32, 32), dtype=np.uint8)
TEST = np.random.default_rng(1).integers(0, 256, (11, 3, 32, 32), dtype=np.uint8)
OORD = {"validation": 5}
NPZ = {"form": "npz", "validation": 5}
SIZES = (9, 8, 7, 6, 5, 4, 3, 2, 1, 30)  # of the ten batches


@pytest.fixture
def store(store):
    (store.root / "imagenet32").mkdir()
    return store


def place(store) -> Path:
    return store.root / "imagenet32"


def write_pngs(store) -> None:
    from PIL import Image

    for folder, images in (("train_32x32", TRAIN), ("valid_32x32", TEST)):
        (place(store) / folder).mkdir()
        for number, image in enumerate(images):
            Image.fromarray(np.moveaxis(image, 0, -1)).save(place(store) / folder / f"{number:07}.png")


def write_batches(folder: Path, train: np.ndarray = TRAIN, sizes=SIZES, test: np.ndarray = TEST) -> list[Path]:
    folder.mkdir(exist_ok=True)
    parts = np.split(train, np.cumsum(sizes)[:-1])
    batches = {f"train_data_batch_{number}.npz": part for number, part in enumerate(parts, 1)} | {"val_data.npz": test}
    for name, images in batches.items():
        labels = np.zeros(len(images), np.int64)
        np.savez(folder / name, mean=np.zeros(3072), data=images.reshape(len(images), -1), labels=labels)
    return [folder / name for name in batches]


def events(*parts) -> list[bytes]:
    return sorted(event.tobytes() for part in parts for event in part)


def check_whole(splits: Splits) -> None:
    """Check that every image is in its split once, in the order of the source."""
    assert [len(part) for part in splits.parts().values()] == [70, 5, 11]
    assert events(splits.train, splits.validation) == events(TRAIN)
    number = {event.tobytes(): place for place, event in enumerate(TRAIN)}
    places = [number[event.tobytes()] for event in splits.train]
    assert places == sorted(places)
    np.testing.assert_array_equal(splits.test, TEST)
    assert (splits.levels, splits.train.dtype) == (256, np.uint8)
    assert isinstance(splits.train, np.memmap)


def test_the_png_folders_are_the_default_form(store):
    write_pngs(store)
    IMAGENET.check(store, OORD)
    splits = IMAGENET.load(store, OORD)
    check_whole(splits)
    assert splits.description.startswith(
        "ImageNet 32x32, made of 75 and 11 images only, down-sampled as by van den Oord et al. (2016), 256 levels"
    )


@pytest.mark.parametrize("folders", [("Imagenet32_train_npz", "Imagenet32_val_npz"), (".", ".")])
def test_batches_are_read_from_folders(folders, store, tmp_path):
    for file in write_batches(tmp_path / "batches"):
        target = place(store) / folders[file.name.startswith("val")]
        target.mkdir(exist_ok=True)
        file.rename(target / file.name)
    splits = IMAGENET.load(store, NPZ)
    check_whole(splits)
    assert "box averaging (Chrabaszcz et al. 2017), not the images of the published tables" in splits.description


def test_splits_do_not_depend_on_the_form_of_the_files(store):
    write_pngs(store)
    write_batches(place(store))
    assert IMAGENET.load(store, OORD).checksum == IMAGENET.load(store, NPZ).checksum


def test_peak_memory_is_about_one_block(store, tmp_path):
    """61 MB of images in ten batches: at most a few blocks are in memory at a time."""
    train = np.random.default_rng(0).integers(0, 256, (20_000, 3, 32, 32), dtype=np.uint8)
    write_batches(place(store), train, [2000] * 10)
    del train
    tracemalloc.start()
    try:
        IMAGENET.check(store, NPZ)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30e6
    splits = IMAGENET.load(store, NPZ)
    assert (len(splits.train), len(splits.validation)) == (19_995, 5)
    np.testing.assert_array_equal(splits.test, TEST)


def another(**arrays):
    """Return a function that writes other arrays over a batch."""
    return lambda path: np.savez(path, **arrays)


FAULTS = [  # a change of the third batch, and the message
    (lambda path: path.unlink(), r"imagenet32: has no train_data_batch_3\.npz; unpack the whole archive"),
    (another(data=np.zeros((4, 3, 32, 32), np.uint8)), r"_3\.npz: data holds rows \(3, 32, 32\) of uint8; .* 3072"),
    (another(data=np.zeros((4, 3072))), r"_3\.npz: data holds rows \(3072,\) of float64"),
]


@pytest.mark.parametrize(("change", "message"), FAULTS)
def test_damaged_batches_are_named_and_leave_the_cache_usable(change, message, store):
    change(write_batches(place(store))[2])
    with pytest.raises((DataError, DataMissing), match=message) as caught:
        IMAGENET.check(store, NPZ)
    assert str(caught.value).startswith(f"imagenet32: {place(store)}") and "\n" not in str(caught.value)
    assert caught.value.exit_code == 3
    write_batches(place(store))
    check_whole(IMAGENET.load(store, NPZ))


def test_an_empty_folder_is_refused(store):
    write_pngs(store)
    for image in (place(store) / "valid_32x32").iterdir():
        image.unlink()
    with pytest.raises(DataError, match=r"valid_32x32: has no PNG files; unpack"):
        IMAGENET.check(store, OORD)


def test_images_that_were_added_are_seen_and_an_unchanged_folder_is_not_read_again(store, monkeypatch):
    write_pngs(store)
    first = IMAGENET.load(store, OORD)
    with monkeypatch.context() as patch:
        patch.setattr("harness.datasets._images.image_sets.hold_out", None)  # needed to prepare
        assert IMAGENET.load(store, OORD).checksum == first.checksum
    folder = place(store) / "train_32x32"
    (folder / "0000000.png").rename(folder / "9000000.png")
    assert IMAGENET.load(store, OORD).checksum != first.checksum
