"""ImageNet at 32x32, in either of its two published down-sampled forms; streamed, never whole in memory.

They are different images with different results: van den Oord et al. (2016) publish PNG files, which the tables of
Glow and its successors use; Chrabaszcz et al. (2017) publish .npz batches made by box averaging.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from pydantic import Field

from harness.core.errors import DataError, DataMissing
from harness.core.settings import Count, Settings
from harness.datasets._images.image_files import read_image
from harness.datasets._images.selection import SEED, fill, masks_of
from harness.datasets._store.store import Prepared, Store, Writer, prepare
from harness.datasets._values.npz_stream import StoredArray, open_npz
from harness.datasets.base import Dataset, DatasetInfo, Splits

VERSION = 1  # of the prepared arrays
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
        return Splits.of(
            prepared,
            levels=256,
            description=(
                f"ImageNet 32x32{part}, {MADE_BY[chosen.form]}, 256 levels; validation is part of the training images, "
                f"by seed {SEED}; test is the official validation part"
            ),
        )

    def _prepared(self, store: Store, chosen: Imagenet32Options) -> Prepared:
        sources = {part: self._source(store, chosen.form, part) for part in ("train", "test")}
        stamps = {part: source.stamp for part, source in sources.items()}
        key = {"version": VERSION, **chosen.model_dump(mode="json"), "places": stamps}
        files = [file for source in sources.values() for file in source.files]

        def build(writer: Writer) -> None:
            counts = {part: source.count() for part, source in sources.items()}
            names = {part: source.name for part, source in sources.items()}
            masks = masks_of(names, counts, chosen.train, chosen.validation, chosen.test)
            for part, source in sources.items():
                fill(writer, masks[part], SHAPE, np.uint8, source.blocks())
            writer.notes["counts"] = list(counts.values())

        return prepare(store, self.name, key, files, build)

    def _source(self, store: Store, form: str, part: str) -> PngFolder | NpzFolder:
        """Return the images of a part of the data root."""
        if form == "oord":
            return PngFolder(self.name, store.find(self.name, f"{FOLDER}/{PNG_FOLDERS[part]}", WAYS[form]))
        if store.root is not None and (store.root / FOLDER / BATCHES[part][0]).exists():
            return NpzFolder(self.name, store.root / FOLDER, BATCHES[part])
        place = store.find(self.name, f"{FOLDER}/{NPZ_FOLDERS[part]}", WAYS[form])
        return NpzFolder(self.name, place, BATCHES[part])


class PngFolder:
    """A folder of PNG files of 32x32, in the order of their names.

    A change is detected if files were added, removed or renamed: checking each of a million files takes
    too long for every trial.

    Attributes:
        name: name of the source, for messages.
        files: the files whose content determines the result, for `prepare`.
        stamp: other signs of a change of the source, as JSON values, for the key of the prepared arrays.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = f"{name}: {folder}"
        self.files: list[Path] = []
        self._dataset, self._folder = name, folder
        try:
            self.stamp = {"place": str(folder), "changed": folder.stat().st_mtime_ns}
        except OSError as error:
            raise DataError(f"{self.name}: cannot be read ({error.strerror or error})") from error

    @cached_property
    def _images(self) -> list[Path]:
        try:
            found = sorted(self._folder.glob("[!.]*.png"))
        except OSError as error:
            raise DataError(f"{self.name}: cannot be read ({error.strerror or error})") from error
        if not found:
            raise DataError(f"{self.name}: has no PNG files; unpack the archive of this name into it")
        return found

    def count(self) -> int:
        """Return the number of images."""
        return len(self._images)

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all images in order, one at a time, uint8 (1, 3, 32, 32)."""
        return (read_image(self._dataset, path, SHAPE)[None] for path in self._images)


class NpzFolder:
    """Batches `data` (N, 3072) in .npz files of a folder, in order; the attributes are those of `PngFolder`."""

    def __init__(self, name: str, folder: Path, batches: list[str]) -> None:
        self.name = f"{name}: {folder}"
        self.files = [folder / batch for batch in batches]
        self.stamp: dict[str, Any] = {}
        for path in self.files:
            if not path.is_file():
                raise DataMissing(f"{self.name}: has no {path.name}; unpack the whole archive")

    def count(self) -> int:
        """Return the number of images, from the headers of the batches."""
        return sum(len(batch) for batch in self._batches())

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all images in order, some megabytes at a time, uint8 (n, 3, 32, 32)."""
        return (block.reshape(-1, *SHAPE) for batch in self._batches() for block in batch.blocks())

    def _batches(self) -> Iterator[StoredArray]:
        for path in self.files:
            with open_npz(path, f"{self.name}: {path.name}") as npz:
                batch = npz.array("data")
                if batch.event != (DIM,) or batch.dtype != np.uint8:
                    raise DataError(
                        f"{batch.name} holds rows {batch.event} of {batch.dtype}; they should be {DIM} values of uint8"
                    )
                yield batch
