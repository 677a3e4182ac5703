"""Survey images of galaxies that do not interact, from the folders of the merger data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.core.errors import DataError, DataMissing
from harness.datasets._images.image_files import ImageFile, find_images, stamp
from harness.datasets._images.image_sets import SplitSizes, Validation, read_folders
from harness.datasets._store.selection import SEED
from harness.datasets._store.store import Store
from harness.datasets.base import Dataset, DatasetInfo, Splits

PLACES = ("galaxy_mergers/noninteracting", "noninteracting")  # in the data root; the first that exists is used
FOLDERS = {"train": ("training",), "test": ("validation", "test")}  # the published 5,000 test images are both
PUBLISHED = (5_000, 5_000)  # images of train and test
SHAPE = (3, 64, 64)


class GalaxyOptions(SplitSizes):
    """The number of images in each split."""

    validation: Validation = 500


class Galaxy(Dataset, name="galaxy"):
    """Galaxies of the Sloan Digital Sky Survey, 64x64."""

    info = DatasetInfo(
        title="Galaxy images, 64x64",
        kind="image",
        shape=SHAPE,
        what=(
            "RGB images of non-interacting galaxies, 256 levels, scaled down to 64x64 by Pillow's antialiased "
            "bilinear filter. Train is the folder training and test the folders validation and test together "
            "(published as 5,000 and 5,000 images), as in the code released with Emerging convolutions; but 500 of "
            "the training images (an option) are validation here"
        ),
        size="10,000 images",
        licence="see the source; image terms of the Sloan Digital Sky Survey",
        source="S. Ackermann et al. (2018), MNRAS 479, 415; https://github.com/SpaceML/merger_transfer_learning",
        how_to_get=(
            "the folder noninteracting of the data set that the source's page links, with training, validation and "
            "test in it, as galaxy_mergers/noninteracting or noninteracting in the data root"
        ),
    )
    on_disk = True
    options_model = GalaxyOptions

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, uint8, mapped from the cache."""
        place = self._place(store)
        files = {part: self._files(place, folders) for part, folders in FOLDERS.items()}
        key = {"place": str(place), "files": {part: stamp(images) for part, images in files.items()}}
        train, test = ([image.path for image in images] for images in files.values())
        text = (
            f"non-interacting galaxies, 64x64, 256 levels; validation is part of the folder training, by seed {SEED}; "
            "test is the folders validation and test"
        )
        chosen: GalaxyOptions = self.parse(options)
        return read_folders(store, self.name, key, lambda: (train, test), SHAPE, "bilinear", chosen, PUBLISHED, text)

    def _files(self, place: Path, folders: tuple[str, ...]) -> list[ImageFile]:
        files: list[ImageFile] = []
        for folder in folders:
            if not (place / folder).is_dir():
                raise DataMissing(f"{self.name}: {place / folder}: no such folder; {self.info.how_to_get}")
            images = find_images(self.name, place / folder, (".jpeg", ".jpg"))
            if not images:
                raise DataError(f"{self.name}: {place / folder}: has no images (.jpeg); {self.info.how_to_get}")
            files += images
        return files

    def _place(self, store: Store) -> Path:
        """Return the folder with training, validation and test."""
        if store.root is not None:
            for place in PLACES:
                if (store.root / place).is_dir():
                    return store.root / place
        return store.find(self.name, PLACES[0], self.info.how_to_get)
