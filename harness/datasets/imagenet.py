"""ImageNet at 32x32, in either of its two published down-sampled forms; streamed, never whole in memory.

They are different images with different results: van den Oord et al. (2016) publish PNG files, which the tables of
Glow and its successors use; Chrabaszcz et al. (2017) publish .npz batches made by box averaging.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from pydantic import Field

from harness.core.settings import Count, Settings
from harness.datasets._images.imagenet_files import SHAPE, NpzBatches, PngFolder, Stream
from harness.datasets._images.selection import SEED, fill, masks_of
from harness.datasets._store.store import Prepared, Store, Writer, prepare
from harness.datasets.base import Dataset, DatasetInfo, Splits

VERSION = 1  # of the prepared arrays
FOLDER = "imagenet32"  # in the data root
PNG_FOLDERS = {"train": "train_32x32", "test": "valid_32x32"}
ARCHIVES = {"train": "Imagenet32_train_npz", "test": "Imagenet32_val_npz"}
BATCHES = {"train": [f"train_data_batch_{number}.npz" for number in range(1, 11)], "test": ["val_data.npz"]}
PUBLISHED = {"oord": (1_281_149, 49_999), "npz": (1_281_167, 50_000)}
WAYS = {
    "oord": "put the folders train_32x32 and valid_32x32 of PNG files into imagenet32/ of the data root",
    "npz": (
        "put Imagenet32_train_npz.zip and Imagenet32_val_npz.zip (https://image-net.org/download-images, after "
        "registration), packed or unpacked, into imagenet32/ of the data root"
    ),
}
MADE_BY = {
    "oord": "down-sampled as by van den Oord et al. (2016)",
    "npz": "down-sampled by box averaging (Chrabaszcz et al. 2017), not the images of the published tables",
}


class Imagenet32Options(Settings):
    """The form of down-sampling, and the number of images in each split."""

    form: Literal["oord", "npz"] = Field(
        "oord", description="oord (PNG folders, of the published tables) or npz (batches of Chrabaszcz et al.)"
    )
    validation: Count = Field(10_000, description="the number of training images that are set apart for validation")
    train: Count | None = Field(None, description="the number of the other training images that are used; null: all")
    test: Count | None = Field(
        None, description="the number of images of the official validation part that are used; null: all"
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
        prepared = self._prepared(store, chosen)
        counts = tuple(prepared.notes["counts"])
        part = "" if counts == PUBLISHED[chosen.form] else f", made of {counts[0]:,} and {counts[1]:,} images only"
        return Splits(
            train=prepared.array("train"),
            validation=prepared.array("validation"),
            test=prepared.array("test"),
            levels=256,
            description=(
                f"ImageNet 32x32{part}, {MADE_BY[chosen.form]}, 256 levels; validation is part of the training images, "
                f"by seed {SEED}; test is the official validation part"
            ),
            checksum=prepared.checksum,
        )

    def _prepared(self, store: Store, chosen: Imagenet32Options) -> Prepared:
        streams = {part: self._stream(store, chosen.form, part) for part in ("train", "test")}
        stamps = {part: stream.stamp for part, stream in streams.items()}
        key = {"version": VERSION, **chosen.model_dump(mode="json"), "places": stamps}
        files = [file for stream in streams.values() for file in stream.files]

        def build(writer: Writer) -> None:
            with writer.scratch() as scratch:
                _fill(streams, chosen, writer, scratch)

        return prepare(store, self.name, key, files, build)

    def _stream(self, store: Store, form: str, part: str) -> Stream:
        """Return the place of the images of a part in the data root."""
        name = self.name
        if form == "oord":
            return PngFolder(name, store.find(name, f"{FOLDER}/{PNG_FOLDERS[part]}", WAYS[form]))
        if store.root is not None:
            for place in (f"{FOLDER}/{ARCHIVES[part]}", f"{FOLDER}/{ARCHIVES[part]}.zip"):
                if (store.root / place).exists():
                    return NpzBatches(name, store.root / place, BATCHES[part])
            if (store.root / FOLDER / BATCHES[part][0]).exists():
                return NpzBatches(name, store.root / FOLDER, BATCHES[part])
        return NpzBatches(name, store.find(name, f"{FOLDER}/{ARCHIVES[part]}.zip", WAYS[form]), BATCHES[part])


def _fill(streams: Mapping[str, Stream], chosen: Imagenet32Options, writer: Writer, scratch: Path) -> None:
    counts = {part: stream.count(scratch) for part, stream in streams.items()}
    names = {part: stream.name for part, stream in streams.items()}
    masks = masks_of(names, counts, chosen.train, chosen.validation, chosen.test)
    for part, stream in streams.items():
        fill(writer, masks[part], SHAPE, np.uint8, stream.blocks(scratch))
    writer.notes["counts"] = list(counts.values())
