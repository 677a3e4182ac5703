"""ImageNet 32x32 from artificial files: streaming, splits, and messages for damaged files."""

from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import DataError
from harness.datasets import Splits, find_dataset

IMAGENET = find_dataset("imagenet32")
TRAIN = np.random.default_rng(0).integers(0, 256, (75, 3, 32, 32), dtype=np.uint8)
TEST = np.random.default_rng(1).integers(0, 256, (11, 3, 32, 32), dtype=np.uint8)
OORD = {"validation": 5}


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


def test_png_folders_are_read(store):
    write_pngs(store)
    IMAGENET.check(store, OORD)
    splits = IMAGENET.load(store, OORD)
    check_whole(splits)
    assert splits.description.startswith(
        "ImageNet 32x32, down-sampled as by van den Oord et al. (2016), made of 75 and 11 images only, 256 levels"
    )


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
        patch.setattr("harness.datasets.published_folders.divide_as_stated", None)  # needed to prepare
        assert IMAGENET.load(store, OORD).checksum == first.checksum
    folder = place(store) / "train_32x32"
    (folder / "0000000.png").rename(folder / "9000000.png")
    assert IMAGENET.load(store, OORD).checksum != first.checksum
