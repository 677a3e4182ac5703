"""Published sets of images in folders that must be got by hand: galaxies of a survey, and ImageNet at 32x32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import DataError
from harness.datasets._images.image_files import Filter, find_images, stamp, write_images
from harness.datasets._store.selection import SEED, SplitSizes, Validation, divide_as_stated
from harness.datasets._store.store import Store, Writer, prepare
from harness.datasets.base import Dataset, DatasetInfo, Splits

VERSION = 3  # of the prepared arrays
GALAXIES = "galaxy_mergers/noninteracting"  # in the data root
IMAGENET = "imagenet32"


class GalaxyOptions(SplitSizes):
    """The number of images in each split."""

    validation: Validation = 500


class Galaxy(Dataset, name="galaxy"):
    """Galaxies of the Sloan Digital Sky Survey that do not interact, 64x64."""

    info = DatasetInfo(
        title="Galaxy images, 64x64",
        kind="image",
        shape=(3, 64, 64),
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
            f"test in it, as {GALAXIES} in the data root"
        ),
    )
    on_disk = True
    options_model = GalaxyOptions

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, uint8, mapped from the cache."""
        folders = _folders(store, self, GALAXIES, "training", "validation", "test")
        files = [stamp(find_images(self.name, folder)) for folder in folders]
        text = (
            f"256 levels; validation is part of the folder training, by seed {SEED}; test is the folders validation "
            "and test"
        )
        return _load(store, self, options, folders, files, "bilinear", "non-interacting galaxies, 64x64", text)


class Imagenet32Options(SplitSizes):
    """The number of images in each split."""

    validation: Validation = 10_000


class Imagenet32(Dataset, name="imagenet32"):
    """ImageNet (ILSVRC 2012), 32x32: the PNG files of the tables of Glow and its successors."""

    info = DatasetInfo(
        title="ImageNet, 32x32",
        kind="image",
        shape=(3, 32, 32),
        what=(
            "RGB images of 32x32, 256 levels: 1,281,149 train and 49,999 test images (the official validation "
            "part), down-sampled as by van den Oord et al. (2016) for the published tables. Those by box averaging "
            "(Chrabaszcz et al. 2017, .npz) give other results. 10,000 training images (an option) are validation"
        ),
        size="about 4 GB, and as much of cache",
        licence="ImageNet terms of access: non-commercial research and education",
        source="A. van den Oord et al. (2016), Pixel RNN; https://image-net.org (registration)",
        how_to_get=f"put the folders train_32x32 and valid_32x32 of PNG files into {IMAGENET}/ of the data root",
    )
    on_disk = True
    options_model = Imagenet32Options

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, uint8, mapped from the cache."""
        folders = _folders(store, self, IMAGENET, "train_32x32", "valid_32x32")
        # Files that are added, removed or renamed are noticed: to look at each of a million takes too long.
        times = [folder.stat().st_mtime_ns for folder in folders]
        title = "ImageNet 32x32, down-sampled as by van den Oord et al. (2016)"
        text = (
            f"256 levels; validation is part of the training images, by seed {SEED}; test is the official validation "
            "part"
        )
        return _load(store, self, options, folders, times, None, title, text)


def _folders(store: Store, dataset: Dataset, place: str, *names: str) -> list[Path]:
    return [store.find(dataset.name, f"{place}/{name}", dataset.info.how_to_get) for name in names]


def _load(
    store: Store,
    dataset: Dataset,
    options: Mapping[str, Any],
    folders: Sequence[Path],
    state: Sequence[Any],
    resize: Filter | None,
    title: str,
    text: str,
) -> Splits:
    """Return the splits of the images of folders, of train and then of test, each in the order of the source.

    They are prepared again when `state` of the folders changes.
    """
    chosen: SplitSizes = dataset.parse(options)
    name = dataset.name

    def build(writer: Writer) -> None:
        files = [find_images(name, folder) for folder in folders]
        for folder, images in zip(folders, files, strict=True):
            if not images:
                raise DataError(f"{name}: {folder}: has no images; {dataset.info.how_to_get}")
        count = len(files[0]), sum(map(len, files[1:]))
        numbers, _, _ = divide_as_stated(name, np.repeat([0, 2], count), True, chosen.limits)
        paths = [path for images in files for path in images]
        write_images(writer, name, paths, numbers, dataset.info.shape or (), resize)
        made = f"made of {count[0]:,} and {count[1]:,} images"
        writer.notes = {"levels": 256, "description": f"{title}, {made}, {text}"}

    key = {"version": VERSION, **chosen.model_dump(mode="json"), "folders": [*map(str, folders)], "state": [*state]}
    return Splits.of(prepare(store, name, key, [], build))
