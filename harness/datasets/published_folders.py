"""Published sets of images in folders: galaxies that do not interact, and ImageNet at 32x32."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import DataError, DataMissing
from harness.datasets._images.image_files import Filter, ImageFile, find_images, stamp, write_images
from harness.datasets._images.image_sets import VERSION, SplitSizes, Validation
from harness.datasets._store.selection import SEED, divide_as_stated
from harness.datasets._store.store import Store, Writer, prepare
from harness.datasets.base import Dataset, DatasetInfo, Splits


def read_folders(
    store: Store,
    name: str,
    key: Mapping[str, Any],
    files: Callable[[], tuple[Sequence[Path], Sequence[Path]]],
    shape: tuple[int, ...],
    resize: Filter | None,
    sizes: SplitSizes,
    published: tuple[int, int],
    description: str,
) -> Splits:
    """Return the splits of a set whose images stream by, each split in the order of the source.

    `files` returns those of train and test. After the title, up to the first comma, of `description` the numbers of
    images are said if they are not the published ones.
    """

    def build(writer: Writer) -> None:
        train, test = files()
        numbers, _, _ = divide_as_stated(name, np.repeat([0, 2], [len(train), len(test)]), True, sizes.limits)
        write_images(writer, name, [*train, *test], numbers, shape, resize)
        whole = (len(train), len(test)) == published
        made = "" if whole else f", made of {len(train):,} and {len(test):,} images only"
        title, comma, rest = description.partition(", 256")
        writer.notes = {"levels": 256, "description": f"{title}{made}{comma}{rest}"}

    key = {"version": VERSION, **sizes.model_dump(mode="json"), **key}
    return Splits.of(prepare(store, name, key, [], build))


GALAXY_PLACES = ("galaxy_mergers/noninteracting", "noninteracting")  # in the data root; the first that exists is used
GALAXY_FOLDERS = {"train": ("training",), "test": ("validation", "test")}  # the published 5,000 test images are both
GALAXIES = (5_000, 5_000)  # images of train and test
GALAXY_SHAPE = (3, 64, 64)


class GalaxyOptions(SplitSizes):
    """The number of images in each split."""

    validation: Validation = 500


class Galaxy(Dataset, name="galaxy"):
    """Galaxies of the Sloan Digital Sky Survey, 64x64."""

    info = DatasetInfo(
        title="Galaxy images, 64x64",
        kind="image",
        shape=GALAXY_SHAPE,
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
        files = {part: self._files(place, folders) for part, folders in GALAXY_FOLDERS.items()}
        key = {"place": str(place), "files": {part: stamp(images) for part, images in files.items()}}
        train, test = ([image.path for image in images] for images in files.values())
        text = (
            f"non-interacting galaxies, 64x64, 256 levels; validation is part of the folder training, by seed {SEED}; "
            "test is the folders validation and test"
        )
        chosen: GalaxyOptions = self.parse(options)
        return read_folders(
            store, self.name, key, lambda: (train, test), GALAXY_SHAPE, "bilinear", chosen, GALAXIES, text
        )

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
            for place in GALAXY_PLACES:
                if (store.root / place).is_dir():
                    return store.root / place
        return store.find(self.name, GALAXY_PLACES[0], self.info.how_to_get)


IMAGENET_SHAPE = (3, 32, 32)
IMAGENET_FOLDERS = ("train_32x32", "valid_32x32")
IMAGENET_IMAGES = (1_281_149, 49_999)
WAY = "put the folders train_32x32 and valid_32x32 of PNG files into imagenet32/ of the data root"


class Imagenet32Options(SplitSizes):
    """The number of images in each split."""

    validation: Validation = 10_000


class Imagenet32(Dataset, name="imagenet32"):
    """ImageNet (ILSVRC 2012), 32x32."""

    info = DatasetInfo(
        title="ImageNet, 32x32",
        kind="image",
        shape=IMAGENET_SHAPE,
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
        folders = [store.find(self.name, f"imagenet32/{name}", WAY) for name in IMAGENET_FOLDERS]
        # Files that are added, removed or renamed are noticed: to look at each of a million takes too long.
        key = {"places": {str(folder): folder.stat().st_mtime_ns for folder in folders}}
        text = (
            "ImageNet 32x32, down-sampled as by van den Oord et al. (2016), 256 levels; validation is part of the "
            f"training images, by seed {SEED}; test is the official validation part"
        )
        chosen: Imagenet32Options = self.parse(options)
        return read_folders(
            store, self.name, key, lambda: self._files(folders), IMAGENET_SHAPE, None, chosen, IMAGENET_IMAGES, text
        )

    def _files(self, folders: list[Path]) -> tuple[list[Path], list[Path]]:
        """Return the PNG files of train and of test, in the order of their names."""
        train, test = (sorted(folder.glob("[!.]*.png")) for folder in folders)
        for folder, files in zip(folders, (train, test), strict=True):
            if not files:
                raise DataError(f"{self.name}: {folder}: has no PNG files; unpack the archive of this name into it")
        return train, test
