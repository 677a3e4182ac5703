"""Bring your own images: any folder of them, split by its subfolders or by a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from harness.core.errors import DataError
from harness.core.settings import Count, Flag, Settings
from harness.datasets._images.image_files import SUFFIXES, Filter, ImageFile, find_images, read_image, stamp
from harness.datasets._images.selection import divide, fill, seeded_order
from harness.datasets._store.store import Store, Writer, prepare
from harness.datasets._values.file_options import Share
from harness.datasets.base import Dataset, DatasetInfo, Splits

VERSION = 1  # of the prepared arrays
VALIDATION_NAMES = ("validation", "val")


class ImageFolderOptions(Settings):
    """The folder, the form of its images, and their split if the folder does not define one."""

    folder: Annotated[str, Field(min_length=1)] = Field(
        description="the folder of images, beside the suite, in the data root or by an absolute path"
    )
    shape: tuple[Count, ...] = Field(description="the event shape [C, H, W], with C = 1 (grey) or 3 (RGB)")
    resize: Flag = Field(
        False, description="whether larger images are cropped to the shape's proportions and scaled down (Lanczos)"
    )
    validation: Share = Field(
        0.1, description="the share of images for validation where no subfolder says; of the train folder's, if any"
    )
    test: Share = Field(0.1, description="the share of images for test where no subfolder says")
    seed: Annotated[int, Field(ge=0, strict=True)] = Field(0, description="the seed of the split by shares")

    @field_validator("shape")
    @classmethod
    def _grey_or_colour(cls, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise PydanticCustomError("shape", "should be [1, H, W] or [3, H, W]")
        return shape


class ImageFolder(Dataset, name="images"):
    """A folder of user-supplied images."""

    info = DatasetInfo(
        title="Your own images, from a folder",
        kind="image",
        what=(
            f"8-bit images ({', '.join(SUFFIXES)}) of a folder and its subfolders, 256 levels; grey or RGB as the "
            "shape asks, colour to grey by luma, grey to RGB by repetition. Splits are the subfolders train, "
            "validation (or val) and test; without validation, a share of train by a seed; without any of them, "
            "shares of all images by a seed, and then near-equal images may fall into different splits"
        ),
        size="the folder's",
        licence="the images'",
        source="the folder that the option `folder` names",
        how_to_get=(
            "put the images into a folder beside the suite or in the data root; options: {folder: mine, shape: [3, 64, "
            "64]}"
        ),
    )
    on_disk = True
    paths = ("folder",)
    options_model = ImageFolderOptions

    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the shape that the options state."""
        return cast(ImageFolderOptions, self.parse(options)).shape

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, uint8, mapped from the cache."""
        chosen, name = cast(ImageFolderOptions, self.parse(options)), self.name
        folder = store.find(
            name, chosen.folder, "it is the option `folder`: beside the suite, below the data root or absolute"
        )
        if not folder.is_dir():
            raise DataError(f"{name}: {folder}: is not a folder; a single array file is the data set npz")
        files = find_images(name, folder)
        key = {"version": VERSION, **chosen.model_dump(mode="json"), "place": str(folder), "files": stamp(files)}
        prepared = prepare(store, name, key, [], lambda writer: _build(name, folder, files, chosen, writer))
        return Splits.of(prepared, levels=256, description=prepared.notes["description"])


def _build(name: str, folder: Path, files: Sequence[ImageFile], chosen: ImageFolderOptions, writer: Writer) -> None:
    masks, how = _split(name, folder, files, chosen)
    resize: Filter | None = "lanczos" if chosen.resize else None
    images = (read_image(name, file.path, chosen.shape, resize)[None] for file in files)
    fill(writer, masks, chosen.shape, np.uint8, images)
    scaled = ", cropped and scaled down by Pillow's Lanczos filter" if chosen.resize else ""
    size = "x".join(map(str, chosen.shape))
    writer.notes["description"] = f"images of {folder.name}, {size}, 256 levels{scaled}; {how}"


def _split(
    name: str, folder: Path, files: Sequence[ImageFile], chosen: ImageFolderOptions
) -> tuple[dict[str, np.ndarray], str]:
    """Return the mask of each split over the files, and a phrase on how they were split."""
    if not files:
        raise DataError(f"{name}: {folder}: has no images; they are files whose names end in {', '.join(SUFFIXES)}")
    tops = np.array([file.relative.partition("/")[0] if "/" in file.relative else "" for file in files])
    there = {top for top in ("train", *VALIDATION_NAMES, "test") if (tops == top).any()}
    if not there & {"train", "test"}:
        counts = [max(1, int(len(files) * share)) for share in (chosen.validation, chosen.test)]
        left = len(files) - sum(counts)
        if left < 1:
            raise DataError(
                f"{name}: {folder}: {len(files)} images, of which {counts[0]} of validation and {counts[1]} of test "
                "leave none to train on; add images or take smaller shares"
            )
        validation, test, train = divide(seeded_order(len(files), chosen.seed), *counts, left)
        return {"train": train, "validation": validation, "test": test}, f"split by seed {chosen.seed}"
    for needed in ("train", "test"):
        if needed not in there:
            raise DataError(
                f"{name}: {folder}: has images in {', '.join(sorted(there))} and none in {needed}; splits by "
                "subfolders need train and test"
            )
    if len(there & set(VALIDATION_NAMES)) > 1:
        raise DataError(f"{name}: {folder}: has both validation and val; merge them")
    stray = [file.relative for file, top in zip(files, tops, strict=True) if top not in there]
    if stray:
        raise DataError(
            f"{name}: {folder}: {len(stray)} images are in no split, such as {stray[0]}; move them into train, "
            "validation or test"
        )
    test = tops == "test"
    if there & set(VALIDATION_NAMES):
        return {"train": tops == "train", "validation": ~(test | (tops == "train")), "test": test}, "split by subfolder"
    pool = np.flatnonzero(tops == "train")
    count = max(1, int(len(pool) * chosen.validation))
    if len(pool) <= count:
        raise DataError(f"{name}: {folder / 'train'}: {len(pool)} images are too few to take validation from")
    validation = np.zeros(len(files), dtype=bool)
    validation[pool[seeded_order(len(pool), chosen.seed)[:count]]] = True
    how = f"split by subfolder, validation from train by seed {chosen.seed}"
    return {"train": (tops == "train") & ~validation, "validation": validation, "test": test}, how
