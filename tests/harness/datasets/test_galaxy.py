"""Galaxy images from artificial JPEGs: scaled to 64, pooled to 32 without overflow, split as published."""

from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import DataError, DataMissing
from harness.datasets import find_dataset

GALAXY = find_dataset("galaxy")
COUNTS = {"training": 12, "validation": 5, "test": 6}
OPTIONS = {"validation": 3}
PLACE = "galaxy_mergers/noninteracting"


def write(store, place: str = PLACE, inside: str = "", side: int = 128) -> None:
    """Write smooth blobs on black with a saturated core, each at a different place and brightness."""
    from PIL import Image

    rows, columns = np.indices((side, side)) / side
    number = 0
    for folder, count in COUNTS.items():
        target = store.root / place / folder / inside
        target.mkdir(parents=True)
        for _ in range(count):
            number += 1
            far = (rows - 0.3 - number / 60) ** 2 + (columns - 0.5) ** 2
            light = np.clip(400 * np.exp(-80 * far), 0, 255)
            pixels = np.dstack([light, light * 0.8, light * (0.3 + number / 40)]).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(target / f"{number:05}.jpeg", quality=95)


def reference(path: Path) -> np.ndarray:
    """Return the image at 64x64 by Pillow only, (3, 64, 64)."""
    from PIL import Image

    with Image.open(path) as image:
        small = image.convert("RGB").resize((64, 64), Image.Resampling.BILINEAR)
    return np.moveaxis(np.asarray(small), -1, 0)


def events(*parts) -> list[bytes]:
    return sorted(event.tobytes() for part in parts for event in part)


@pytest.mark.parametrize("place", [PLACE, "noninteracting"])
@pytest.mark.parametrize(("inside", "side"), [("", 128), ("images", 64)])
def test_train_and_test_are_the_published_splits_except_validation(place, inside, side, store):
    write(store, place, inside, side)
    GALAXY.check(store, OPTIONS)
    splits = GALAXY.load(store, OPTIONS)
    assert [len(part) for part in splits.parts().values()] == [9, 3, 11]
    assert (splits.levels, splits.train.dtype, splits.shape) == (256, np.uint8, (3, 64, 64))
    files = {name: sorted((store.root / place / name / inside).glob("*.jpeg")) for name in COUNTS}
    assert events(splits.train, splits.validation) == events(map(reference, files["training"]))
    np.testing.assert_array_equal(splits.test, np.stack([*map(reference, files["validation"] + files["test"])]))
    assert "made of 12 and 11 images only, 256 levels" in splits.description
    assert "test is the folders validation and test" in splits.description


def test_missing_files_are_named(store):
    with pytest.raises(DataMissing, match=r"galaxy: .*galaxy_mergers/noninteracting: no such file or folder"):
        GALAXY.check(store, OPTIONS)
    write(store)
    for image in (store.root / PLACE / "test").iterdir():
        image.unlink()
    with pytest.raises(DataError, match=r"galaxy: .*noninteracting/test: has no images \(\.jpeg\)"):
        GALAXY.check(store, OPTIONS)
    (store.root / PLACE / "test").rmdir()
    with pytest.raises(DataMissing, match=r"galaxy: .*noninteracting/test: no such folder"):
        GALAXY.check(store, OPTIONS)
