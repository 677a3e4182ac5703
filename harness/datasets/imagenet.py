"""ImageNet at 32x32, the PNG files of van den Oord et al. (2016), as in the tables of Glow and its successors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np

from harness.core.errors import DataError
from harness.datasets._images.image_files import read_image
from harness.datasets._images.image_sets import SplitSizes, Stream, Validation, made_of, streamed
from harness.datasets._store.selection import SEED
from harness.datasets._store.store import Store
from harness.datasets.base import Dataset, DatasetInfo, Splits

SHAPE = (3, 32, 32)
FOLDER = "imagenet32"  # in the data root
FOLDERS = {"train": "train_32x32", "test": "valid_32x32"}
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
        what=(
            "RGB images of 32x32, 256 levels: 1,281,149 train and 49,999 held-out images, down-sampled as by van den "
            "Oord et al. (2016) for the published tables. Those by box averaging (Chrabaszcz et al. 2017, .npz) are "
            "others, with other results. 10,000 training images (an option), taken by a fixed seed, are validation; "
            "the official validation part is test"
        ),
        size="about 4 GB, and as much of cache",
        licence="ImageNet terms of access: non-commercial research and education",
        source="A. van den Oord et al. (2016), Pixel RNN; https://image-net.org (registration)",
        how_to_get=WAY,
    )
    on_disk = True
    options_model = Imagenet32Options

    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return (3, 32, 32)."""
        return SHAPE

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, uint8, mapped from the cache."""
        chosen = cast(Imagenet32Options, self.parse(options))
        parts: dict[str, Stream] = {}
        stamps: dict[str, dict[str, Any]] = {}
        for part, name in FOLDERS.items():
            folder = store.find(self.name, f"{FOLDER}/{name}", WAY)
            # Files that are added, removed or renamed are noticed: to look at each of a million takes too long.
            stamps[part] = {"place": str(folder), "changed": folder.stat().st_mtime_ns}
            parts[part] = _png_stream(self.name, folder)

        def describe(counts: tuple[int, ...]) -> str:
            return (
                f"ImageNet 32x32{made_of(counts, PUBLISHED)}, down-sampled as by van den Oord et al. (2016), "
                f"256 levels; validation is part of the training images, by seed {SEED}; test is the official "
                "validation part"
            )

        return streamed(store, self.name, {"places": stamps}, [], parts, SHAPE, chosen, describe)


def _png_stream(dataset: str, folder: Path) -> Stream:
    """Return the PNG files of a folder, in the order of their names, one at a time."""
    name = f"{dataset}: {folder}"

    @cache
    def images() -> list[Path]:
        paths = sorted(folder.glob("[!.]*.png"))
        if not paths:
            raise DataError(f"{name}: has no PNG files; unpack the archive of this name into it")
        return paths

    def blocks() -> Iterator[np.ndarray]:
        return (read_image(dataset, path, SHAPE)[None] for path in images())

    return Stream(name, lambda: len(images()), blocks)
