"""Survey images of galaxies that do not interact, from the folders of the merger data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from pydantic import Field

from harness.core.errors import DataError, DataMissing
from harness.core.settings import Count, Settings
from harness.datasets._images.image_files import ImageFile, find_images, read_image, stamp
from harness.datasets._images.selection import SEED, fill, masks_of
from harness.datasets._store.store import Prepared, Store, Writer, prepare
from harness.datasets.base import Dataset, DatasetInfo, Splits

VERSION = 1  # of the prepared arrays
PLACES = ("galaxy_mergers/noninteracting", "noninteracting")  # in the data root; the first that exists is used
FOLDERS = {"train": ("training",), "test": ("validation", "test")}  # the published 5,000 test images are both
PUBLISHED = (5_000, 5_000)  # images of train and test
SHAPE = (3, 64, 64)


class GalaxyOptions(Settings):
    """The number of images in each split."""

    validation: Count = Field(500, description="the number of training images that are set apart for validation")
    train: Count | None = Field(None, description="the number of the other training images that are used; null: all")
    test: Count | None = Field(None, description="the number of test images that are used; null: all")


class Galaxy(Dataset, name="galaxy"):
    """Galaxies of the Sloan Digital Sky Survey, 64x64."""

    info = DatasetInfo(
        title="Galaxy images, 64x64",
        kind="image",
        what=(
            "RGB images of non-interacting galaxies, 256 levels. The larger JPEGs are scaled down to 64x64 by "
            "Pillow's antialiased bilinear filter and rounded to the nearest of 0..255. As in the code released with "
            "Emerging convolutions, train is the folder training and test the folders validation and test together "
            "(published as 5,000 and 5,000 images); but 500 of the training images (an option), taken by a fixed "
            "seed, are validation here"
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

    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return (3, 64, 64)."""
        return SHAPE

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, uint8, mapped from the cache."""
        chosen = cast(GalaxyOptions, self.parse(options))
        prepared = self._prepared(store, chosen)
        counts = tuple(prepared.notes["counts"])
        part = "" if counts == PUBLISHED else f", made of {counts[0]:,} and {counts[1]:,} images"
        return Splits.of(
            prepared,
            levels=256,
            description=(
                f"non-interacting galaxies, 64x64{part}, 256 levels; validation is part "
                f"of the folder training, by seed {SEED}; test is the folders validation and test"
            ),
        )

    def _prepared(self, store: Store, chosen: GalaxyOptions) -> Prepared:
        name = self.name
        place = self._place(store)
        files: dict[str, list[ImageFile]] = {}
        for part, folders in FOLDERS.items():
            files[part] = []
            for folder in folders:
                if not (place / folder).is_dir():
                    raise DataMissing(f"{name}: {place / folder}: no such folder; {self.info.how_to_get}")
                images = find_images(name, place / folder, (".jpeg", ".jpg"))
                if not images:
                    raise DataError(f"{name}: {place / folder}: has no images (.jpeg); {self.info.how_to_get}")
                files[part] += images
        stamps = {part: stamp(images) for part, images in files.items()}
        key = {"version": VERSION, **chosen.model_dump(mode="json"), "place": str(place), "files": stamps}
        return prepare(store, name, key, [], lambda writer: _build(name, place, files, chosen, writer))

    def _place(self, store: Store) -> Path:
        """Return the folder with training, validation and test."""
        if store.root is not None:
            for place in PLACES:
                if (store.root / place).is_dir():
                    return store.root / place
        return store.find(self.name, PLACES[0], self.info.how_to_get)


def _build(name: str, place: Path, files: Mapping[str, list[ImageFile]], chosen: GalaxyOptions, writer: Writer) -> None:
    names = {
        "train": f"{name}: {place / 'training'}",
        "test": f"{name}: {place / 'validation'} with {place / 'test'}",
    }
    counts = {part: len(images) for part, images in files.items()}
    writer.notes["counts"] = list(counts.values())
    masks = masks_of(names, counts, chosen.train, chosen.validation, chosen.test)

    for part, images in files.items():
        pixels = (read_image(name, file.path, SHAPE, "bilinear")[None] for file in images)
        fill(writer, masks[part], SHAPE, np.uint8, pixels)
