"""Images in folders: find them, detect changes, read them, and reduce them in size.

Conversion of an image to an array (C, H, W) of 8-bit values, everywhere in this project:

- PNG, JPEG, BMP, WebP, TIFF and GIF, recognised by their content, under any name; with 8 bits per channel.
- It is rotated according to its EXIF tag. Palettes are expanded.
- For three channels, grey becomes three equal channels, CMYK becomes RGB by Pillow's rule. For one channel, colour
  becomes luma, (299 R + 587 G + 114 B) / 1000.
- An opaque alpha channel is dropped; transparent pixels are an error, as are animations and images too large to be
  meant (Pillow's limit against decompression bombs).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from harness.core.errors import DataError
from harness.core.files import IMAGE, open_file
from harness.datasets._store.store import Writer

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".jfif", ".bmp", ".webp", ".tif", ".tiff", ".gif")
FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF")
_ORIENTATION = 0x0112  # the EXIF tag of the rotation
MODES = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"}

Filter = Literal["bilinear", "lanczos"]


def find_images(name: str, folder: Path, others: list[str] | None = None) -> list[Path]:
    """Return all images below a folder, by their suffixes, in the order of their paths, without hidden files.

    Links are followed, but no folder is entered twice. A folder that cannot be read is a DataError. The relative paths
    of all other files are appended to `others`.
    """

    def refuse(error: OSError) -> None:
        raise DataError(f"{name}: {error.filename}: cannot be read ({error.strerror or error})") from error

    images: list[Path] = []
    entered: set[str] = set()
    for place, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        if (real := os.path.realpath(place)) in entered:
            folders.clear()
            continue
        entered.add(real)
        folders[:] = sorted(inner for inner in folders if not inner.startswith("."))
        for path in (Path(place, file) for file in files if not file.startswith(".")):
            if path.suffix.lower() in SUFFIXES and path.is_file():
                images.append(path)
            elif others is not None:
                others.append(path.relative_to(folder).as_posix())
    return sorted(images, key=str)


def stamp(files: Sequence[Path]) -> str:
    """Return a digest of paths, sizes and times: it changes when a file is added, removed, renamed or written."""
    digest = hashlib.sha256()
    for file, facts in ((file, file.stat()) for file in files):
        digest.update(f"{file}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def image_size(name: str, path: Path) -> tuple[int, int]:
    """Return (width, height) of an image as it is shown, from its header; see `read_image` for errors."""
    from PIL import Image

    with _decoding(name, path), open_file(path, IMAGE) as file, Image.open(file, formats=FORMATS) as image:
        turned = image.getexif().get(_ORIENTATION, 1) >= 5
        return image.size[::-1] if turned else image.size


def read_image(name: str, path: Path, shape: tuple[int, ...], resize: Filter | None = None) -> np.ndarray:
    """Return one image as uint8 (C, H, W), converted as described in this module.

    Args:
        name: of the data set, for messages.
        path: the file.
        shape: (C, H, W) with C = 1 or 3.
        resize: Pillow's filter, which is antialiased: the largest centred part of the right proportions is scaled
            down to (H, W), and never enlarged. None: it must already be H x W, and is not decoded otherwise.

    Raises:
        DataError: it does not decode, is not 8-bit, transparent, animated, huge, or of the wrong size.
    """
    from PIL import Image, ImageOps

    channels, height, width = shape
    with _decoding(name, path):
        with open_file(path, IMAGE) as file, Image.open(file, formats=FORMATS) as image:
            _check_kind(name, path, image)
            fault = _size_fault(image.size, (width, height), resize)  # before it takes memory
            if fault and _size_fault(image.size[::-1], (width, height), resize):  # the tag may be behind the pixels
                raise DataError(f"{name}: {path}: {fault}")
            ImageOps.exif_transpose(image, in_place=True)
            image.load()
        if fault := _size_fault(image.size, (width, height), resize):
            raise DataError(f"{name}: {path}: {fault}")
        plain = _without_alpha(name, path, image).convert("L" if channels == 1 else "RGB")
        if resize is not None:
            plain = ImageOps.fit(plain, (width, height), method=Image.Resampling[resize.upper()])
    pixels = np.asarray(plain)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def write_images(
    writer: Writer,
    name: str,
    paths: Sequence[Path],
    numbers: Mapping[str, np.ndarray],
    shape: tuple[int, ...],
    resize: Filter | None = None,
) -> None:
    """Write the images with these numbers of each split; see `read_image`.

    Raises:
        DataError: with the first of the faulty files.
    """
    for split, chosen in numbers.items():
        target = writer.create(split, (len(chosen), *shape), np.uint8)
        for place, number in enumerate(chosen.tolist()):
            target[place] = read_image(name, paths[number], shape, resize)


@contextlib.contextmanager
def _decoding(name: str, path: Path) -> Iterator[None]:
    """Turn any error of a decoder, and the warning of a decompression bomb, into a DataError."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except DataError:
        raise
    except Exception as error:  # Pillow's decoders may raise anything on damaged files
        what = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        raise DataError(f"{name}: {path}: does not decode as an image ({what}); get it again or remove it") from error


def _size_fault(size: tuple[int, int], wanted: tuple[int, int], resize: Filter | None) -> str:
    small = size[0] < wanted[0] or size[1] < wanted[1]
    if size == wanted or (resize is not None and not small):
        return ""
    hint = "leave it out" if small else "say resize: true to scale down"
    return f"is {size[0]} x {size[1]} pixels; asked for {wanted[0]} x {wanted[1]}. {hint}"


def _check_kind(name: str, path: Path, image: Image) -> None:
    # The tiles of a file have the decoder's arguments, of which the first is the raw mode.
    tiles = [tile[3] if isinstance(tile[3], tuple) else (tile[3],) for tile in getattr(image, "tile", [])]
    depths = {str(arguments[0]) for arguments in tiles}
    if image.mode not in MODES or any(";16" in depth for depth in depths):
        depth = next(iter(sorted(depths)), image.mode)
        raise DataError(f"{name}: {path}: its pixels are {depth}, not 8 bits per channel; convert it")
    if image.format != "MPO" and getattr(image, "is_animated", False):
        raise DataError(f"{name}: {path}: is an animation; take one image out of it")


def _without_alpha(name: str, path: Path, image: Image) -> Image:
    """Return the image without its alpha channel, which must be opaque."""
    if not image.has_transparency_data:
        return image
    full = image.convert("RGBA")
    if full.getchannel("A").getextrema()[0] != 255:
        raise DataError(f"{name}: {path}: has transparent pixels; lay it over a background")
    return full.convert("RGB")


def pool(images: np.ndarray, factor: int) -> np.ndarray:
    """Return the mean of each factor x factor square of pixels; of whole numbers the nearest one, halves up.

    (..., H, W) becomes (..., H / factor, W / factor) of the same dtype; both sides are multiples of the factor.
    """
    if factor == 1:
        return images
    *leading, height, width = images.shape
    squares = images.reshape(*leading, height // factor, factor, width // factor, factor)
    if images.dtype.kind == "f":
        return squares.mean(axis=(-3, -1))
    area = factor * factor
    return ((2 * squares.sum(axis=(-3, -1), dtype=np.int64) + area) // (2 * area)).astype(images.dtype)
