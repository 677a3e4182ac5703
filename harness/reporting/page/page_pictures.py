"""Pixels of the page: samples beside data, and the matrices that layers became, as small pictures inside it."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from harness.core.records import MAP
from harness.kinds.density.figure_samples import arrays_of, mosaic, sample_blocks
from harness.reporting.frame import Results
from harness.reporting.page.page_figures import unescaped

CLEAR = 255  # the transparent entry of a palette
LARGE = 16  # pixels; of larger images a picture holds fewer
FEW = 36
POSITIVE, NEGATIVE = (0x1F, 0x83, 0xC6), (0xDD, 0x6B, 0x10)  # both stand out from white and from black


@dataclass(frozen=True)
class Picture:
    """A picture inside the page.

    Attributes:
        title: of the panel.
        source: a data: URI of a PNG.
        width, height: in pixels.
        remark: what else is to be said of it.
    """

    title: str
    source: str
    width: int
    height: int
    remark: str = ""


@dataclass(frozen=True)
class Maps:
    """What the layer of one row became: its matrix, then its factors, where it has any."""

    row: str
    path: str
    matrix: Picture
    factors: tuple[Picture, ...]


def sample_pictures(results: Results) -> dict[str, list[Picture]]:
    """For each data set of images the data, then samples of each layer; put back in order where data are permuted."""
    pictures = {}
    for column in results.plan.columns:
        blocks = sample_blocks(arrays_of(results, column))
        if blocks and blocks[0][1].ndim == 4:
            top = max(1, int(blocks[0][1].max()))
            pictures[column] = [image_picture(title, images, top) for title, images in blocks]
    return pictures


def learned_pictures(results: Results) -> dict[str, list[Maps]]:
    """For each data set what the first layer under test of each row became, where trials have stored it."""
    pictures = {}
    for column in results.plan.columns:
        found = (_maps(row, arrays) for row, arrays in arrays_of(results, column).items())
        pictures[column] = [maps for maps in found if maps is not None]
    return {column: found for column, found in pictures.items() if found}


def figure_pictures(figure: Figure) -> tuple[str, tuple[Picture, ...]]:
    """(its title, its panels) of a figure that shows pictures in [0, 1], of a channel or three."""
    panels = []
    for axes in figure.axes:
        for image in axes.images:
            pixels = np.round(255 * np.clip(np.asarray(image.get_array()), 0, 1)).astype(np.uint8)
            indices, palette = _in_palette(pixels)
            panels.append(_picture(unescaped(axes.get_title(loc="left")), indices, palette, bytes(256 * [255])))
    return unescaped(figure.get_suptitle()), tuple(panels)


def _maps(row: str, arrays: Mapping[str, np.ndarray]) -> Maps | None:
    names = [name for name in arrays if name.startswith(MAP)]
    if not names:
        return None
    whole, *factors = names
    path = whole.removeprefix(MAP)
    pictures = [matrix_picture(name.removeprefix(whole).strip(), arrays[name]) for name in factors]
    return Maps(row, path, matrix_picture(row, arrays[whole]), tuple(pictures))


def image_picture(title: str, images: np.ndarray, top: int) -> Picture:
    """The first images (N, C, H, W) as one square, in at most 255 colours, transparent between them."""
    if images.shape[-1] > LARGE:
        images = images[:FEW]
    pixels = np.round(255 * mosaic(images, top)).astype(np.uint8)
    between = mosaic(np.zeros_like(images), 1)
    between = (between if between.ndim == 2 else between[:, :, 0]) == 1
    indices, palette = _in_palette(pixels)
    return _picture(title, np.where(between, CLEAR, indices), palette, bytes(255 * [255] + [0]))


def _in_palette(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(H, W) or (H, W, 3) in 0..255 as indices below CLEAR, and the colours that they stand for."""
    if pixels.ndim == 2:
        return np.minimum(pixels, CLEAR - 1), np.repeat(np.arange(256), 3)
    drawn = Image.fromarray(pixels).quantize(CLEAR, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    return np.asarray(drawn), np.array((drawn.getpalette() or []) + 768 * [0])[:768]


def matrix_picture(title: str, matrix: np.ndarray) -> Picture:
    """A matrix, row 0 on top: positive entries blue, negative ones orange, by the square root of their magnitude.

    Zero is transparent, and the largest magnitude is opaque.
    """
    values = matrix.astype(float)
    largest = float(np.abs(values).max(initial=0))
    strength = np.sqrt(np.abs(values) / largest) if largest > 0 else np.zeros_like(values)
    steps = 127  # 0 is no entry, 1..127 positive, 128..254 negative
    level = np.round(steps * strength).astype(int)
    indices = np.where(values < 0, level + steps * (level > 0), level)
    palette = np.zeros((256, 3), dtype=int)
    palette[1 : steps + 1], palette[steps + 1 : 2 * steps + 1] = POSITIVE, NEGATIVE
    shades = [round(255 * step / steps) for step in range(1, steps + 1)]
    remark = f"up to {largest:.3g}"
    return _picture(title, indices, palette.ravel(), bytes([0, *shades, *shades, 0]), remark)


def _picture(title: str, indices: np.ndarray, palette: np.ndarray, opacity: bytes, remark: str = "") -> Picture:
    """A PNG of palette colours; of the palette, what is not used is left out."""
    used, places = np.unique(indices, return_inverse=True)
    colours = palette.reshape(-1, 3)[used].astype(np.uint8)
    image = Image.fromarray(places.reshape(indices.shape).astype(np.uint8))
    image.putpalette(colours.tobytes())
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True, transparency=bytes(opacity[index] for index in used))
    encoded = base64.b64encode(buffer.getvalue()).decode("ascii")
    return Picture(title, f"data:image/png;base64,{encoded}", image.width, image.height, remark)
