"""Bring your own images: any folder of them, split by its subfolders or by a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from harness.core.errors import DataError
from harness.core.settings import Count, Flag, Settings
from harness.core.texts import first_few
from harness.datasets._images.image_files import SUFFIXES, find_images, image_size, stamp, write_images
from harness.datasets._store.selection import SEED, SHARES, SPLIT_NAMES, SPLITS, Shares, by_shares, divide_as_stated
from harness.datasets._store.store import Store, Writer, prepare
from harness.datasets.base import Dataset, DatasetInfo, Splits

SIDE = 32  # pixels that `init` proposes at most
VERSION = 5  # of the prepared arrays


class ImageFolderOptions(Settings):
    """The folder, the form of its images, and their split if the folder does not define one."""

    folder: Annotated[str, Field(min_length=1)] = Field(
        description="the folder of images, beside the suite, in the data root or by an absolute path"
    )
    shape: tuple[Count, ...] = Field(description="the event shape [C, H, W], with C = 1 (grey) or 3 (RGB)")
    resize: Flag = Field(
        False,
        description="whether larger images are cropped to the shape's proportions and scaled down (Lanczos); others of "
        "another size are refused",
    )
    shares: Shares = Field(SHARES, description="the shares of train, validation and test where no subfolder says")

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
            f"8-bit images ({', '.join(SUFFIXES)}) of a folder and its subfolders, grey or RGB as the shape asks, 256 "
            "levels. Splits are the subfolders train, validation and test, in any case, also training, val, valid and "
            "testing; without them, shares of all images by a fixed seed"
        ),
        source="the folder that the option `folder` names",
        how_to_get="put the folder beside the suite or into the data root; options: {folder: mine, shape: [3, 64, 64]}",
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

        sizes = {image_size(f"images: {path}", image) for image in images}
        side = min(SIDE, 2 ** (min(min(size) for size in sizes).bit_length() - 1))
        with Image.open(images[0]) as first:
            channels = 1 if first.mode in ("1", "L", "LA", "I", "I;16") else 3
        resize = {} if sizes == {(side, side)} else {"resize": True}
        return {"folder": str(path), "shape": [channels, side, side], **resize}

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, uint8, mapped from the cache."""
        chosen: ImageFolderOptions = self.parse(options)
        name = self.name
        hint = "it is the option `folder`: beside the suite, below the data root or absolute"
        folder = store.find(name, chosen.folder, hint)
        if not folder.is_dir():
            raise DataError(f"{name}: {folder}: is not a folder; a single array file is the data set npz")
        others: list[str] = []
        files = find_images(name, folder, others)
        key = {"version": VERSION, **chosen.model_dump(mode="json"), "place": str(folder), "files": stamp(files)}
        prepared = prepare(store, name, key, [], lambda writer: _build(name, folder, files, chosen, writer))
        text = f"left out, as they are no images that can be read: {len(others):,} files ({first_few(sorted(others))})"
        return Splits.of(prepared, left_out=(text,) * bool(others))


def _build(name: str, folder: Path, files: Sequence[Path], chosen: ImageFolderOptions, writer: Writer) -> None:
    names = [file.relative_to(folder) for file in files]
    numbers, how = _split(f"{name}: {folder}", names, chosen)
    write_images(writer, name, files, numbers, chosen.shape, "lanczos" if chosen.resize else None)
    scaled = ", cropped and scaled down by Pillow's Lanczos filter" * chosen.resize
    text = f"images of {folder.name}, {'x'.join(map(str, chosen.shape))}, 256 levels{scaled}; {how}"
    writer.notes = {"levels": 256, "description": text}


def _split(name: str, files: Sequence[Path], chosen: ImageFolderOptions) -> tuple[dict[str, np.ndarray], str]:
    """Return the numbers of the files of each split, and a phrase on how they were split."""
    if not files:
        raise DataError(f"{name}: has no images; they are files whose names end in {', '.join(SUFFIXES)}")
    tops = [file.parts[0] if len(file.parts) > 1 else "" for file in files]
    folders = {top: SPLIT_NAMES[top.lower()] for top in sorted(set(tops)) if top.lower() in SPLIT_NAMES}
    if not folders:
        parts = by_shares(name, len(files), chosen.shares, shuffled=True)
        return {split: np.sort(numbers) for split, numbers in parts.items()}, f"split by seed {SEED}"
    if not {"train", "test"} <= {*folders.values()} or len(folders) > len({*folders.values()}):
        raise DataError(
            f"{name}: has the subfolders {', '.join(folders)}; splits by subfolders need one of train (or training) "
            "and one of test (or testing), and perhaps one of validation; classes of these names must be renamed"
        )
    if stray := [file for file, top in zip(files, tops, strict=True) if top not in folders]:
        raise DataError(
            f"{name}: {len(stray)} images are in no split, such as {stray[0]}; move them into train, validation or test"
        )
    marks = np.array([SPLITS.index(folders[top]) for top in tops])
    numbers, _, how = divide_as_stated(name, marks, shuffled=True)
    return numbers, how.replace("as stated", "by subfolder")
