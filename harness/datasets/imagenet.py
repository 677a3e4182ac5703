"""ImageNet at 32x32, in either of its two published down-sampled forms; streamed, never whole in memory.

They are different images with different results: van den Oord et al. (2016) publish PNG files, which the tables of
Glow and its successors use; Chrabaszcz et al. (2017) publish .npz batches made by box averaging.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from pydantic import Field

from harness.core.errors import DataError, DataMissing
from harness.datasets._images.image_files import read_image
from harness.datasets._images.image_sets import SplitSizes, Stream, Validation, made_of, streamed
from harness.datasets._store.selection import SEED
from harness.datasets._store.store import Store
from harness.datasets._values.npz_arrays import blocks, open_npz
from harness.datasets.base import Dataset, DatasetInfo, Splits

SHAPE = (3, 32, 32)
DIM = 3 * 32 * 32
FOLDER = "imagenet32"  # in the data root
PNG_FOLDERS = {"train": "train_32x32", "test": "valid_32x32"}
NPZ_FOLDERS = {"train": "Imagenet32_train_npz", "test": "Imagenet32_val_npz"}
BATCHES = {"train": [f"train_data_batch_{number}.npz" for number in range(1, 11)], "test": ["val_data.npz"]}
PUBLISHED = {"oord": (1_281_149, 49_999), "npz": (1_281_167, 50_000)}
WAYS = {
    "oord": "put the folders train_32x32 and valid_32x32 of PNG files into imagenet32/ of the data root",
    "npz": (
        "unpack Imagenet32_train_npz.zip and Imagenet32_val_npz.zip (https://image-net.org/download-images, after "
        "registration) into imagenet32/ of the data root, or into a folder of the archive's name there"
    ),
}
MADE_BY = {
    "oord": "down-sampled as by van den Oord et al. (2016)",
    "npz": "down-sampled by box averaging (Chrabaszcz et al. 2017), not the images of the published tables",
}


class Imagenet32Options(SplitSizes):
    """The number of images in each split, and the form of down-sampling."""

    validation: Validation = 10_000
    form: Literal["oord", "npz"] = Field(
        "oord", description="oord (PNG folders, of the published tables) or npz (batches of Chrabaszcz et al.)"
    )


class Imagenet32(Dataset, name="imagenet32"):
    """ImageNet (ILSVRC 2012), 32x32."""

    info = DatasetInfo(
        title="ImageNet, 32x32",
        kind="image",
        what=(
            "RGB images of 32x32, 256 levels. form: oord, the default and that of the published tables: 1,281,149 "
            "train and 49,999 held-out images, down-sampled as by van den Oord et al. (2016). form: npz: 1,281,167 "
            "and 50,000 images, down-sampled by box averaging (Chrabaszcz et al. 2017). Other images, other numbers: "
            "the two never compare. 10,000 training images (an option), taken by a fixed seed, are validation; the "
            "official validation part is test"
        ),
        size="about 4 GB, and as much of cache",
        licence="ImageNet terms of access: non-commercial research and education",
        source=(
            "A. van den Oord et al. (2016), Pixel RNN; P. Chrabaszcz et al. (2017), arXiv:1707.08819; "
            "https://image-net.org (registration)"
        ),
        how_to_get=f"form: oord: {WAYS['oord']}; form: npz: {WAYS['npz']}",
    )
    on_disk = True
    options_model = Imagenet32Options

    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return (3, 32, 32)."""
        return SHAPE

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, uint8, mapped from the cache."""
        chosen = cast(Imagenet32Options, self.parse(options))
        find, root = partial(store.find, self.name), store.root
        files: list[Path] = []
        parts: dict[str, Stream] = {}
        stamps: dict[str, dict[str, Any]] = {"train": {}, "test": {}}
        for part in ("train", "test"):
            if chosen.form == "oord":
                folder = find(f"{FOLDER}/{PNG_FOLDERS[part]}", WAYS["oord"])
                # Files that are added, removed or renamed are noticed: to look at each of a million takes too long.
                stamps[part] = {"place": str(folder), "changed": folder.stat().st_mtime_ns}
                parts[part] = _png_stream(self.name, folder)
            else:
                packed = root is None or not (root / FOLDER / BATCHES[part][0]).exists()
                folder = find(f"{FOLDER}/{NPZ_FOLDERS[part]}" if packed else FOLDER, WAYS["npz"])
                batches = [folder / batch for batch in BATCHES[part]]
                for path in batches:
                    if not path.is_file():
                        raise DataMissing(f"{self.name}: {folder}: has no {path.name}; unpack the whole archive")
                files += batches
                parts[part] = _npz_stream(f"{self.name}: {folder}", batches)

        def describe(counts: tuple[int, ...]) -> str:
            return (
                f"ImageNet 32x32{made_of(counts, PUBLISHED[chosen.form])}, {MADE_BY[chosen.form]}, 256 levels; "
                f"validation is part of the training images, by seed {SEED}; test is the official validation part"
            )

        return streamed(store, self.name, {"places": stamps}, files, parts, SHAPE, chosen, describe)


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


def _npz_stream(name: str, files: list[Path]) -> Stream:
    """Return the batches `data` (N, 3072) of .npz files, in order, one in memory at a time."""

    def batches() -> Iterator[np.ndarray]:
        for path in files:
            with open_npz(path, f"{name}: {path.name}") as npz:
                batch = npz.array("data")
                if batch.shape[1:] != (DIM,) or batch.dtype != np.uint8:
                    raise DataError(
                        f"{npz.name}: data holds rows {batch.shape[1:]} of {batch.dtype}; they should be {DIM} values "
                        "of uint8"
                    )
                yield batch

    def images() -> Iterator[np.ndarray]:
        return (block.reshape(-1, *SHAPE) for batch in batches() for block in blocks(batch))

    return Stream(name, lambda: sum(map(len, batches())), images)
