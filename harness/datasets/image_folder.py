"""Bring your own images: any folder of them, split by its subfolders or by a seed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
from pydantic import BeforeValidator, Field, field_validator
from pydantic_core import PydanticCustomError

from harness.core.errors import DataError
from harness.core.settings import Count, Settings
from harness.datasets._images.image_files import (
    SUFFIXES,
    ImageFile,
    Resize,
    find_images,
    image_size,
    left_out,
    read_image,
    stamp,
)
from harness.datasets._store.selection import SPLIT_NAMES, SPLITS, Share, assign, fill, seeded_order
from harness.datasets._store.store import Store, Writer, prepare
from harness.datasets.base import Dataset, DatasetInfo, Splits

SIDE = 32  # pixels that `init` proposes at most
VERSION = 4  # of the prepared arrays
FAULTS = 5  # files that a message names


def _other_sizes(value: Any) -> Any:
    """Raise one error for anything but the four rules."""
    if value is not True and value is not False and value not in ("crop", "leave_out"):
        raise PydanticCustomError("resize", "should be true, false, crop or leave_out")
    return value


OtherSizes = Annotated[bool | Literal["crop", "leave_out"], BeforeValidator(_other_sizes)]


class ImageFolderOptions(Settings):
    """The folder, the form of its images, and their split if the folder does not define one."""

    folder: Annotated[str, Field(min_length=1)] = Field(
        description="the folder of images, beside the suite, in the data root or by an absolute path"
    )
    shape: tuple[Count, ...] = Field(description="the event shape [C, H, W], with C = 1 (grey) or 3 (RGB)")
    resize: OtherSizes = Field(
        False,
        description=(
            "images of another size: false refuses them, true crops larger ones to the shape's proportions and scales "
            "them down (Lanczos), crop takes the centre of larger ones, leave_out leaves them out"
        ),
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
            "validation and test, in any case, also training, val, valid and testing; without validation, a share of "
            "train by a seed; without any of them, shares of all images by a seed, and then near-equal images may fall "
            "into different splits"
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

    def propose(self, path: Path) -> dict[str, Any] | None:
        """Return the options of a folder of images: squares of a power of two of pixels, at most 32, grey or RGB."""
        images = find_images(f"images: {path}", path) if path.is_dir() else []
        if not images:
            return None
        from PIL import Image

        sizes = {image_size(f"images: {path}", image.path) for image in images}
        side = min(SIDE, 2 ** (min(min(size) for size in sizes).bit_length() - 1))
        with Image.open(images[0].path) as first:
            channels = 1 if first.mode in ("1", "L", "LA", "I", "I;16") else 3
        resize = {} if sizes == {(side, side)} else {"resize": True}
        return {"folder": str(path), "shape": [channels, side, side], **resize}

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
        others: list[str] = []
        files = find_images(name, folder, others=others)
        key = {"version": VERSION, **chosen.model_dump(mode="json"), "place": str(folder), "files": stamp(files)}
        prepared = prepare(store, name, key, [], lambda writer: _build(name, folder, files, chosen, writer))
        unread = [left_out(others)] if others else []
        return Splits.of(prepared, left_out=(*unread, *prepared.notes["left_out"]))


def _build(name: str, folder: Path, files: Sequence[ImageFile], chosen: ImageFolderOptions, writer: Writer) -> None:
    left: list[str] = []
    if chosen.resize == "leave_out":
        files, left = _of_size(name, folder, files, chosen.shape)
    split, how = _split(name, folder, files, chosen)
    fill(writer, split, chosen.shape, np.uint8, _images(name, folder, files, chosen))
    scaled = {True: ", cropped and scaled down by Pillow's Lanczos filter", "crop": ", of larger ones the centre"}
    size = "x".join(map(str, chosen.shape))
    text = f"images of {folder.name}, {size}, 256 levels{scaled.get(chosen.resize, '')}; {how}"
    writer.notes = {"levels": 256, "description": text, "left_out": left}


def _images(name: str, folder: Path, files: Sequence[ImageFile], chosen: ImageFolderOptions) -> Iterator[np.ndarray]:
    """Yield each image, (1, C, H, W); at the end raise a DataError with the number and first of faulty files."""
    resize: Resize | None = {True: "lanczos", "crop": "crop"}.get(chosen.resize)  # type: ignore[assignment]
    faults: list[DataError] = []
    for file in files:
        try:
            image = read_image(name, file.path, chosen.shape, resize)
        except DataError as error:
            faults.append(error)
        else:
            if not faults:
                yield image[None]
    if len(faults) == 1:
        raise faults[0]
    if faults:
        first = "\n  ".join(str(fault).removeprefix(f"{name}: {folder}/") for fault in faults[:FAULTS])
        raise DataError(f"{name}: {folder}: {len(faults):,} faulty files, the first of them:\n  {first}")


def _of_size(
    name: str, folder: Path, files: Sequence[ImageFile], shape: tuple[int, ...]
) -> tuple[list[ImageFile], list[str]]:
    """Return the images of the right size, and a note on the others."""
    kept = []
    for file in files:
        size = shape[:0:-1]
        with contextlib.suppress(DataError):  # of a damaged file, which is reported with all others
            size = image_size(name, file.path)
        kept += [file] if size == shape[:0:-1] else []
    if files and not kept:
        raise DataError(f"{name}: {folder}: none of {len(files):,} images is {shape[2]} x {shape[1]} pixels")
    left = len(files) - len(kept)
    return kept, [f"left out: {left:,} of {len(files):,} images, of another size"] * bool(left)


def _split(name: str, folder: Path, files: Sequence[ImageFile], chosen: ImageFolderOptions) -> tuple[np.ndarray, str]:
    """Return the place of each file's split in SPLITS, and a phrase on how they were split."""
    if not files:
        raise DataError(f"{name}: {folder}: has no images; they are files whose names end in {', '.join(SUFFIXES)}")
    tops = np.array([file.relative.partition("/")[0] if "/" in file.relative else "" for file in files])
    folders = {top: SPLIT_NAMES[top.lower()] for top in sorted(set(tops)) if top.lower() in SPLIT_NAMES}
    if not folders:
        validation, test = (max(1, int(len(files) * share)) for share in (chosen.validation, chosen.test))
        counts = {"validation": validation, "test": test, "train": len(files) - validation - test}
        if counts["train"] < 1:
            raise DataError(
                f"{name}: {folder}: {len(files)} images, of which {validation} of validation and {test} of test "
                "leave none to train on; add images or take smaller shares"
            )
        return assign(seeded_order(len(files), chosen.seed), counts), f"split by seed {chosen.seed}"
    for needed in ("train", "test"):
        if needed not in folders.values():
            raise DataError(
                f"{name}: {folder}: has images in {', '.join(folders)} and none in {needed}; splits by subfolders need "
                "train and test (or training and testing); classes of these names must be renamed"
            )
    if len(folders) > len(set(folders.values())):
        raise DataError(f"{name}: {folder}: has {', '.join(folders)}, several of one split; merge them")
    stray = [file.relative for file, top in zip(files, tops, strict=True) if top not in folders]
    if stray:
        raise DataError(
            f"{name}: {folder}: {len(stray)} images are in no split, such as {stray[0]}; move them into train, "
            "validation or test"
        )
    split = np.array([SPLITS.index(folders[top]) for top in tops])
    if "validation" in folders.values():
        return split, "split by subfolder"
    pool = np.flatnonzero(split == SPLITS.index("train"))
    count = max(1, int(len(pool) * chosen.validation))
    if len(pool) <= count:
        raise DataError(f"{name}: {folder / 'train'}: {len(pool)} images are too few to take validation from")
    split[pool[seeded_order(len(pool), chosen.seed)[:count]]] = SPLITS.index("validation")
    return split, f"split by subfolder, validation from train by seed {chosen.seed}"
