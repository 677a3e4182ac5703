"""Published folders: galaxies from artificial JPEGs, scaled and split as published; ImageNet 32x32 from PNG files."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from toys import events

from harness.core.errors import DataError, DataMissing
from harness.datasets import find_dataset

GALAXY = find_dataset("galaxy")
COUNTS = {"training": 12, "validation": 5, "test": 6}
GALAXY_SIZES = {"validation": 3}
PLACE = "galaxy_mergers/noninteracting"


def write_galaxies(store, inside: str = "", side: int = 128) -> None:
    """Write smooth blobs on black with a saturated core, each at a different place and brightness."""
    rows, columns = np.indices((side, side)) / side
    number = 0
    for folder, count in COUNTS.items():
        target = store.root / PLACE / folder / inside
        target.mkdir(parents=True)
        for _ in range(count):
            number += 1
            far = (rows - 0.3 - number / 60) ** 2 + (columns - 0.5) ** 2
            light = np.clip(400 * np.exp(-80 * far), 0, 255)
            pixels = np.dstack([light, light * 0.8, light * (0.3 + number / 40)]).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(target / f"{number:05}.jpeg", quality=95)


def reference(path: Path) -> np.ndarray:
    """Return the image at 64x64 by Pillow only, (3, 64, 64)."""
    with Image.open(path) as image:
        small = image.convert("RGB").resize((64, 64), Image.Resampling.BILINEAR)
    return np.moveaxis(np.asarray(small), -1, 0)


@pytest.mark.parametrize(("inside", "side"), [("", 128), ("images", 64)])
def test_train_and_test_are_the_published_splits_except_validation(inside, side, store):
    write_galaxies(store, inside, side)
    GALAXY.check(store, GALAXY_SIZES)
    splits = GALAXY.load(store, GALAXY_SIZES)
    assert [len(part) for part in splits.parts().values()] == [9, 3, 11]
    assert (splits.levels, splits.train.dtype, splits.shape) == (256, np.uint8, (3, 64, 64))
    files = {name: sorted((store.root / PLACE / name / inside).glob("*.jpeg")) for name in COUNTS}
    assert events(splits.train, splits.validation) == events(map(reference, files["training"]))
    np.testing.assert_array_equal(splits.test, np.stack([*map(reference, files["validation"] + files["test"])]))
    assert "made of 12 and 11 images, 256 levels" in splits.description
    assert "test is the folders validation and test" in splits.description


def test_missing_galaxies_are_named(store):
    with pytest.raises(DataMissing, match=r"galaxy: .*galaxy_mergers/noninteracting/training: no such file or folder"):
        GALAXY.check(store, GALAXY_SIZES)
    write_galaxies(store)
    for image in (store.root / PLACE / "test").iterdir():
        image.unlink()
    with pytest.raises(DataError, match=r"galaxy: .*noninteracting/test: has no images"):
        GALAXY.check(store, GALAXY_SIZES)
    (store.root / PLACE / "test").rmdir()
    with pytest.raises(DataMissing, match=r"galaxy: .*noninteracting/test: no such file or folder"):
        GALAXY.check(store, GALAXY_SIZES)


IMAGENET = find_dataset("imagenet32")
TRAIN = np.random.default_rng(0).integers(0, 256, (75, 3, 32, 32), dtype=np.uint8)
TEST = np.random.default_rng(1).integers(0, 256, (11, 3, 32, 32), dtype=np.uint8)
IMAGENET_SIZES = {"validation": 5}


def write_pngs(store) -> None:
    for folder, images in (("train_32x32", TRAIN), ("valid_32x32", TEST)):
        (store.root / "imagenet32" / folder).mkdir(parents=True)
        for number, image in enumerate(images):
            place = store.root / "imagenet32" / folder / f"{number:07}.png"
            Image.fromarray(np.moveaxis(image, 0, -1)).save(place)


def test_every_image_of_png_folders_is_in_its_split_once_in_the_order_of_the_source(store):
    write_pngs(store)
    IMAGENET.check(store, IMAGENET_SIZES)
    splits = IMAGENET.load(store, IMAGENET_SIZES)
    assert [len(part) for part in splits.parts().values()] == [70, 5, 11]
    assert events(splits.train, splits.validation) == events(TRAIN)
    number = {event.tobytes(): place for place, event in enumerate(TRAIN)}
    places = [number[event.tobytes()] for event in splits.train]
    assert places == sorted(places)
    np.testing.assert_array_equal(splits.test, TEST)
    assert (splits.levels, splits.train.dtype) == (256, np.uint8)
    assert isinstance(splits.train, np.memmap)
    assert splits.description.startswith(
        "ImageNet 32x32, down-sampled as by van den Oord et al. (2016), made of 75 and 11 images, 256 levels"
    )


def test_an_empty_folder_is_refused(store):
    write_pngs(store)
    for image in (store.root / "imagenet32" / "valid_32x32").iterdir():
        image.unlink()
    with pytest.raises(DataError, match=r"valid_32x32: has no images; put the folders"):
        IMAGENET.check(store, IMAGENET_SIZES)


def test_images_that_were_added_are_seen_and_an_unchanged_folder_is_not_read_again(store, monkeypatch):
    write_pngs(store)
    first = IMAGENET.load(store, IMAGENET_SIZES)
    with monkeypatch.context() as patch:
        patch.setattr("harness.datasets.published_folders.divide_as_stated", None)  # needed to prepare
        assert IMAGENET.load(store, IMAGENET_SIZES).checksum == first.checksum
    folder = store.root / "imagenet32" / "train_32x32"
    (folder / "0000000.png").rename(folder / "9000000.png")
    assert IMAGENET.load(store, IMAGENET_SIZES).checksum != first.checksum
