"""ImageNet at 32x32, the PNG files of van den Oord et al. (2016), as in the tables of Glow and its successors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.core.errors import DataError
from harness.datasets._images.image_sets import SplitSizes, Validation, read_folders
from harness.datasets._store.selection import SEED
from harness.datasets._store.store import Store
from harness.datasets.base import Dataset, DatasetInfo, Splits

SHAPE = (3, 32, 32)
FOLDER = "imagenet32"  # in the data root
FOLDERS = ("train_32x32", "valid_32x32")
PUBLISHED = (1_281_149, 49_999)
WAY = "put the folders train_32x32 and valid_32x32 of PNG files into imagenet32/ of the data root"


class Imagenet32Options(SplitSizes):
    """The number of images in each split."""

    validation: Validation = 10_000


class Imagenet32(Dataset, name="imagenet32"):
    """ImageNet (ILSVRC 2012), 32x32."""

    info = DatasetInfo(
        title="ImageNet, 32x32",
        kind="image",
        shape=SHAPE,
        what=(
            "RGB images of 32x32, 256 levels: 1,281,149 train and 49,999 test images (the official validation "
            "part), down-sampled as by van den Oord et al. (2016) for the published tables. Those by box averaging "
            "(Chrabaszcz et al. 2017, .npz) give other results. 10,000 training images (an option) are validation"
        ),
        size="about 4 GB, and as much of cache",
        licence="ImageNet terms of access: non-commercial research and education",
        source="A. van den Oord et al. (2016), Pixel RNN; https://image-net.org (registration)",
        how_to_get=WAY,
    )
    on_disk = True
    options_model = Imagenet32Options

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, uint8, mapped from the cache."""
        folders = [store.find(self.name, f"{FOLDER}/{name}", WAY) for name in FOLDERS]
        # Files that are added, removed or renamed are noticed: to look at each of a million takes too long.
        key = {"places": {str(folder): folder.stat().st_mtime_ns for folder in folders}}
        text = (
            "ImageNet 32x32, down-sampled as by van den Oord et al. (2016), 256 levels; validation is part of the "
            f"training images, by seed {SEED}; test is the official validation part"
        )
        chosen: Imagenet32Options = self.parse(options)
        return read_folders(store, self.name, key, lambda: self._files(folders), SHAPE, None, chosen, PUBLISHED, text)

    def _files(self, folders: list[Path]) -> tuple[list[Path], list[Path]]:
        """Return the PNG files of train and of test, in the order of their names."""
        train, test = (sorted(folder.glob("[!.]*.png")) for folder in folders)
        for folder, files in zip(folders, (train, test), strict=True):
            if not files:
                raise DataError(f"{self.name}: {folder}: has no PNG files; unpack the archive of this name into it")
        return train, test
