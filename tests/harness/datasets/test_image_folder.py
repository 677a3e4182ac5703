"""Folders of images: decoding, splits, and one message for each faulty file."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from toys import events

from harness.core.errors import DataError, DataMissing
from harness.datasets import find_dataset
from harness.datasets._images.image_files import find_images, read_image, stamp

FOLDER = find_dataset("images")
PIXELS = np.random.default_rng(0).integers(0, 256, (30, 6, 8, 3), dtype=np.uint8)
OPTIONS = {"folder": "mine", "shape": [3, 6, 8]}
COLOUR = (3, 6, 8)


def save(path: Path, pixels: np.ndarray, mode: str | None = None, **options) -> Path:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    (image if mode is None else image.convert(mode)).save(path, **options)
    return path


@pytest.fixture
def store(store):
    """Return a store whose data root has 30 images of 8 x 6 in the folder `mine`."""
    for number, pixels in enumerate(PIXELS):
        save(store.root / "mine" / f"{number:03}.png", pixels)
    return store


def first_channels(images: np.ndarray) -> np.ndarray:
    return np.moveaxis(images, -1, -3)


def png(width: int, height: int, depth: int, colour: int, rows: bytes) -> bytes:
    """Return a PNG file of a type that Pillow does not write."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_a_flat_folder_is_split_by_shares(store):
    FOLDER.check(store, OPTIONS)
    splits = FOLDER.load(store, OPTIONS)
    assert [len(part) for part in splits.parts().values()] == [24, 3, 3]
    number = {event.tobytes(): place for place, event in enumerate(first_channels(PIXELS))}
    places = [[number[event.tobytes()] for event in part] for part in splits.parts().values()]
    assert sorted(number.values()) == sorted([*places[0], *places[1], *places[2]])
    assert places == [sorted(part) for part in places]
    assert (splits.levels, splits.train.dtype, splits.shape) == (256, np.uint8, COLOUR)
    assert splits.description == "images of mine, 3x6x8, 256 levels; split by seed 0"
    shared = FOLDER.load(store, OPTIONS | {"shares": [0.5, 0.2, 0.3]})
    assert [len(part) for part in shared.parts().values()] == [15, 6, 9]
    assert isinstance(splits.train, np.memmap)


@pytest.mark.parametrize(
    ("train", "validation", "test"),
    [("train", "validation", "test"), ("Training", "VAL", "Test"), ("TRAIN", "valid", "testing")],
)
def test_subfolders_are_the_splits_and_may_have_subfolders(train, validation, test, store):
    for number, pixels in enumerate(PIXELS):
        part = (f"{train}/a", f"{train}/b", validation, test)[number % 4]
        save(store.root / "split" / part / f"{number}.png", pixels)
    splits = FOLDER.load(store, OPTIONS | {"folder": "split"})
    images = first_channels(PIXELS)
    assert events(splits.train) == events(images[0::4], images[1::4])
    assert events(splits.validation) == events(images[2::4])
    assert events(splits.test) == events(images[3::4])
    assert splits.description.endswith("; split by subfolder")


def test_validation_comes_from_train_where_no_subfolder_is_for_it(store):
    for number, pixels in enumerate(PIXELS):
        save(store.root / "split" / ("test" if number < 10 else "train") / f"{number}.png", pixels)
    splits = FOLDER.load(store, OPTIONS | {"folder": "split"})
    assert events(splits.test) == events(first_channels(PIXELS[:10]))
    assert events(splits.train, splits.validation) == events(first_channels(PIXELS[10:]))
    assert len(splits.validation) == 2 and "validation from train by seed 0" in splits.description


def test_colours_are_converted_as_stated(tmp_path):
    from PIL import Image

    colour, grey = PIXELS[0], PIXELS[0, ..., 0]
    as_rgb = save(tmp_path / "rgb.png", colour)
    np.testing.assert_array_equal(read_image("x", as_rgb, COLOUR), first_channels(colour))
    luma = colour @ np.array([0.299, 0.587, 0.114])
    assert np.abs(read_image("x", as_rgb, (1, 6, 8))[0] - luma).max() <= 0.51
    as_grey = save(tmp_path / "grey.png", grey)
    np.testing.assert_array_equal(read_image("x", as_grey, (1, 6, 8)), grey[None])
    np.testing.assert_array_equal(read_image("x", as_grey, COLOUR), np.stack([grey] * 3))
    palette = Image.fromarray(grey // 64).convert("P")
    palette.putpalette([9, 8, 7, 10, 20, 30, 1, 2, 3, 255, 0, 255])
    palette.save(tmp_path / "palette.png")
    expected = np.array([[9, 8, 7], [10, 20, 30], [1, 2, 3], [255, 0, 255]], np.uint8)[grey // 64]
    np.testing.assert_array_equal(read_image("x", tmp_path / "palette.png", COLOUR), first_channels(expected))
    opaque = save(tmp_path / "opaque.png", np.dstack([colour, np.full((6, 8), 255, np.uint8)]))
    np.testing.assert_array_equal(read_image("x", opaque, COLOUR), first_channels(colour))
    bits = save(tmp_path / "bits.png", grey, mode="1")
    assert set(np.unique(read_image("x", bits, (1, 6, 8)))) == {0, 255}


@pytest.mark.parametrize("suffix", [".jpg", ".JPEG", ".webp", ".bmp", ".TIF", ".tiff", ".gif"])
def test_other_formats_decode_by_their_content(suffix, tmp_path):
    options = {".jpg": {"quality": 95}, ".tiff": {"compression": "tiff_lzw"}}.get(suffix, {})
    smooth = np.linspace(0, 250, 6 * 8 * 3).reshape(6, 8, 3).astype(np.uint8)
    image = read_image("x", save(tmp_path / f"image{suffix}", smooth, **options), COLOUR)
    assert image.shape == COLOUR and np.abs(image.astype(int) - first_channels(smooth)).mean() < 12
    assert find_images("x", tmp_path) == [tmp_path / f"image{suffix}"]


def test_exif_turns_an_image_upright(tmp_path):
    from PIL import Image

    image = Image.fromarray(PIXELS[0])
    exif = image.getexif()
    exif[0x0112] = 6  # a quarter turn clockwise to be shown
    image.save(tmp_path / "turned.png", exif=exif)
    upright = np.rot90(PIXELS[0], -1)
    np.testing.assert_array_equal(read_image("x", tmp_path / "turned.png", (3, 8, 6)), first_channels(upright))
    with pytest.raises(DataError, match=r"is 8 x 6 pixels; asked for 6 x 8"):
        read_image("x", save(tmp_path / "flat.png", PIXELS[0]), (3, 8, 6))


def test_larger_images_are_cropped_to_proportion_and_scaled_down_with_antialiasing(tmp_path):
    checks = np.indices((64, 96)).sum(0) % 2 * 255  # one-pixel checks: without antialiasing, black or white
    wide = save(tmp_path / "wide.png", np.dstack([checks] * 3).astype(np.uint8))
    for kind in ("lanczos", "bilinear"):
        image = read_image("x", wide, (3, 8, 8), kind)
        assert image.shape == (3, 8, 8)
        assert image.min() >= 120 and image.max() <= 135
    halves = np.zeros((64, 96), np.uint8)
    halves[:, 88:] = 255  # outside the centred 64 x 64, and beyond the filter's reach
    assert read_image("x", save(tmp_path / "halves.png", halves), (1, 8, 8), "bilinear").max() == 0


def test_scaling_is_described_and_only_done_on_request(store):
    large = OPTIONS | {"shape": [3, 3, 4]}
    with pytest.raises(DataError, match=r"\.png: is 8 x 6 pixels; asked for 4 x 3\. say resize"):
        FOLDER.check(store, large)
    splits = FOLDER.load(store, large | {"resize": True})
    assert splits.shape == (3, 3, 4)
    assert "cropped and scaled down by Pillow's Lanczos filter" in splits.description
    with pytest.raises(DataError, match=r"is 8 x 6 pixels; asked for 16 x 12\. leave it out"):
        FOLDER.check(store, OPTIONS | {"shape": [3, 12, 16], "resize": True})


def jpeg(tmp_path: Path) -> bytes:
    return save(tmp_path / "whole.jpg", PIXELS[0]).read_bytes()


DAMAGE = {
    "a truncated JPEG": (lambda whole: whole[:-20], "does not decode as an image .*truncated"),
    "an empty file": (lambda whole: b"", "does not decode as an image"),
    "garbage with the head of a JPEG": (lambda whole: whole[:20] + bytes(900), "does not decode as an image"),
    "a bomb": (lambda whole: png(60_000, 60_000, 8, 0, b""), "does not decode as an image .*decompression bomb"),
    "a PNG without its rows": (lambda whole: png(8, 6, 8, 2, b"\0"), "does not decode as an image"),
    "16-bit colour": (lambda whole: png(8, 6, 16, 2, bytes(49 * 6)), r"its pixels are RGB;16B, not 8 bits per channel"),
    "16-bit grey": (lambda whole: png(8, 6, 16, 0, bytes(17 * 6)), "its pixels are I;16B, not 8 bits per channel"),
    "transparent": (lambda whole: png(8, 6, 8, 6, bytes(33 * 6)), "has transparent pixels"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_image_is_named_and_leaves_the_cache_usable(name, store, tmp_path):
    change, message = DAMAGE[name]
    bad = store.root / "mine" / "013.jpg"
    bad.write_bytes(change(jpeg(tmp_path)))
    with pytest.raises(DataError, match=message) as caught:
        FOLDER.check(store, OPTIONS)
    assert str(caught.value).startswith(f"images: {bad}: ")
    assert caught.value.exit_code == 3 and "\n" not in str(caught.value)
    bad.unlink()
    assert len(FOLDER.load(store, OPTIONS).train) == 24


def test_pixels_of_another_depth_are_refused_in_every_format(tmp_path):
    from PIL import Image

    Image.fromarray(PIXELS[0, ..., 0].astype(np.uint16) * 256).save(tmp_path / "deep.tif")
    Image.fromarray(PIXELS[0, ..., 0].astype(np.float32)).save(tmp_path / "real.tif")
    for path in tmp_path.iterdir():
        with pytest.raises(DataError, match="not 8 bits per channel"):
            read_image("x", path, COLOUR)
    named = save(tmp_path / "image.jpg", PIXELS[0], format="TGA")  # refused whatever its name
    with pytest.raises(DataError, match="does not decode as an image"):
        read_image("x", named, COLOUR)


def test_files_that_are_not_read_are_counted_and_named(store):
    assert FOLDER.load(store, OPTIONS).left_out == ()
    for file in ("a.heic", "b.HEIC", "labels.csv", "README", ".hidden.png", "sub/c.heic"):
        path = store.root / "mine" / file
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"?")
    splits = FOLDER.load(store, OPTIONS)  # from the cache
    assert splits.left_out == (
        "left out, as they are no images that can be read: 5 files (README, a.heic, b.HEIC, labels.csv, sub/c.heic)",
    )
    assert len(splits.train) == 24


def test_animations_are_refused(tmp_path):
    from PIL import Image

    frames = [Image.fromarray(pixels) for pixels in PIXELS[:3]]
    for name in ("moving.png", "moving.webp", "moving.gif", "pages.tif"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
        with pytest.raises(DataError, match=rf"{name}: is an animation"):
            read_image("x", tmp_path / name, COLOUR)


def test_linked_folders_are_entered_once(store):
    (store.root / "linked").mkdir()
    (store.root / "linked" / "all").symlink_to(store.root / "mine")
    (store.root / "linked" / "same").symlink_to(store.root / "mine")
    (store.root / "mine" / "loop").symlink_to(store.root / "linked")
    images = find_images("x", store.root / "linked")
    assert images == [store.root / "linked" / f"all/{number:03}.png" for number in range(30)]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "split: has no images; they are files whose names end in .png"),
        (["a.png", "b.png"], "2 events in the shares .* leave none for validation"),
        (["train/a.png", "train/b.png"], "has the subfolders train; splits by subfolders need"),
        (["val/a.png", "cats/b.png", "cats/c.png", "cats/d.png"], "has the subfolders val; splits"),
        (["train/a.png", "Train/b.png", "test/c.png"], "has the subfolders Train, test, train; splits"),
        (["train/a.png", "test/b.png"], "0 events are there for train; at least 1"),
        (["train/a.png", "test/b.png", "val/c.png", "validation/d.png"], "test, train, val, validation; splits"),
        (["train/a.png", "test/b.png", "val/c.png", "d.png", "e/f.png"], "2 images are in no split, such as d.png"),
    ],
)
def test_folders_that_cannot_be_split_are_refused(files, message, store):
    (store.root / "split").mkdir()
    for name in files:
        save(store.root / "split" / name, PIXELS[0])
    with pytest.raises(DataError, match=message):
        FOLDER.check(store, OPTIONS | {"folder": "split"})


def test_a_missing_folder_and_a_file_are_refused(store):
    with pytest.raises(DataMissing, match=r"images: .*gone: no such file or folder.*option `folder`"):
        FOLDER.check(store, OPTIONS | {"folder": "gone"})
    with pytest.raises(DataError, match=r"000\.png: is not a folder"):
        FOLDER.check(store, OPTIONS | {"folder": "mine/000.png"})


def test_a_change_in_the_folder_is_noticed(store):
    mine = store.root / "mine"
    first = stamp(find_images("x", mine))
    assert stamp(find_images("x", mine)) == first
    before = FOLDER.load(store, OPTIONS).checksum
    save(mine / "000.png", PIXELS[1] // 2)
    assert stamp(find_images("x", mine)) != first
    assert FOLDER.load(store, OPTIONS).checksum != before
    second = stamp(find_images("x", mine))
    (mine / "001.png").rename(mine / "901.png")
    assert stamp(find_images("x", mine)) != second
    (mine / "002.png").unlink()
    assert sum(map(len, FOLDER.load(store, OPTIONS).parts().values())) == 29
