"""Events that equal or nearly equal others, windows and patches that overlap others; and what only looks alike."""

import numpy as np
import pytest

from harness.datasets import Store, find_dataset
from harness.pipeline.duplicates import digests, nearly_equal, overlapping

RNG = np.random.default_rng(0)


def windows(values: np.ndarray, length: int, stride: int) -> np.ndarray:
    """Return the windows (N, C, length) of values (C, n)."""
    views = np.lib.stride_tricks.sliding_window_view(values, length, axis=1)
    return views[:, ::stride].swapaxes(0, 1).copy()


def walk(channels: int, steps: int) -> np.ndarray:
    return np.rint(30 * RNG.normal(size=(channels, steps)).cumsum(1)).astype(np.int32)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
def test_equal_events_have_equal_digests_in_every_type(dtype):
    events = RNG.integers(0, 200, (90, 3, 4, 4)).astype(dtype)
    held_out = np.concatenate([events[[3, 5, 5]], events[80:]])
    assert len(set(digests(held_out)) & set(digests(events[:80]))) == 2 and len(set(digests(held_out))) == 12
    signed = np.zeros((1, 1, 2, 2), np.float32)
    assert digests(-signed) == digests(signed)  # -0.0 equals 0.0


@pytest.mark.parametrize(("length", "stride", "dtype"), [(16, 8, np.int32), (64, 7, np.int32), (64, 45, np.float64)])
def test_windows_of_one_recording_that_overlap_are_found_at_any_shift(length, stride, dtype):
    every = windows(walk(2, 3000).astype(dtype), length, stride)
    order = RNG.permutation(len(every))
    cut = len(every) // 4
    held_out, training = every[order[:cut]], every[order[cut:]]
    shifts = np.abs(order[:cut, None] - order[None, cut:]).min(axis=1) * stride
    farthest = length * (3 / 4 if length > 16 else 1 / 2)  # a quarter of 16 is too short to tell
    assert overlapping(held_out, training).sum() == (shifts <= farthest).sum() > cut / 2
    assert not overlapping(every[-20:], every[: -20 - length // stride - 1]).any()  # split in time


def photo(side: int, channels: int = 1) -> np.ndarray:
    """Return a smooth picture with noise, (channels, side, side)."""
    rows, columns = np.mgrid[:side, :side] / side
    waves = sum(np.sin(2 * np.pi * (a * rows + b * columns)) for a, b in RNG.uniform(-6, 6, (12, 2)))
    return np.clip(128 + 22 * waves + 3 * RNG.standard_normal((channels, side, side)), 0, 255).astype(np.uint8)


@pytest.mark.parametrize(
    ("channels", "side", "stride", "dtype"), [(1, 8, 2, np.uint8), (3, 8, 3, np.float32), (1, 16, 5, np.int16)]
)
def test_patches_of_one_picture_that_overlap_are_found_at_any_shift(channels, side, stride, dtype):
    def patches(step: int) -> np.ndarray:
        views = np.lib.stride_tricks.sliding_window_view(photo(160, channels), (side, side), axis=(1, 2))
        each = views[:, ::step, ::step].reshape(channels, -1, side, side).swapaxes(0, 1).astype(dtype)
        return each[RNG.permutation(len(each))[:500]]

    shared = patches(stride)
    assert overlapping(shared[:60], shared[60:]).mean() > 0.6
    tiles = patches(side)
    assert not overlapping(tiles[:60], tiles[60:]).any()


def test_strokes_of_one_pen_are_no_overlap():
    rows, columns = np.mgrid[:16, :16]
    places = RNG.uniform(5, 10, (600, 1, 1)) + RNG.normal(scale=0.3, size=(600, 16, 1)).cumsum(axis=1)
    distances = np.abs(columns - places) + 0 * rows
    strokes = np.clip(300 - 100 * distances, 0, 255).astype(np.uint8)[:, None]
    assert overlapping(strokes[:200], strokes[200:]).mean() < 0.01


def test_flat_lines_padding_and_like_beats_are_no_overlap():
    noise = windows(walk(1, 6400), 64, 64)
    noise[:, :, 20:] = 7  # padded
    assert not overlapping(noise[:20], noise[20:]).any()
    beat = RNG.integers(50, 200, 30)
    for noise_levels in (1, 3):  # the same beat at irregular times, on a flat line and among noise
        beats = RNG.integers(0, noise_levels, 64_000)
        for begin in 128 * np.arange(500) + RNG.integers(40, 60, 500):
            beats[begin : begin + 30] = beat if noise_levels > 1 else np.resize([60, 20, 70], 30) * (np.arange(30) < 10)
        every = windows(beats[None].astype(np.int16), 128, 128)
        every[:, 0, -1] = np.arange(500)  # no two are equal
        assert overlapping(every[250:], every[:250]).mean() < 0.01
    slow = windows(np.rint(RNG.normal(size=(1, 40_000)).cumsum(1) / 3).astype(np.int16), 64, 64)
    assert not overlapping(slow[500:], slow[:500]).any()


# Near duplicates: copies with little noise, mirrored or turned ones


def pictures(count: int) -> np.ndarray:
    """Return smooth pictures of much the same brightness range with some noise, (count, 1, 12, 12)."""
    rows, columns = np.mgrid[:12, :12] / 12
    waves = RNG.normal(size=(6, count, 3, 1, 1))
    light = sum(20 * a * np.sin(5 * (b * rows + c * columns)) for a, b, c in waves.swapaxes(1, 2))
    return np.clip(128 + light + 3 * RNG.normal(size=(count, 12, 12)), 0, 255).astype(np.uint8)[:, None]


PICTURES = pictures(500)


def near(queries: np.ndarray, events: np.ndarray) -> np.ndarray:
    return nearly_equal(queries, events, events)


CHANGES = {
    "one pixel by one level": lambda copies: copies + np.eye(1, 144, 17, dtype=np.uint8).reshape(1, 1, 12, 12),
    "noise": lambda copies: copies + RNG.integers(-1, 2, copies.shape).astype(np.uint8),
    "mirrored": lambda copies: copies[..., ::-1] + np.uint8(1),
    "upside down": lambda copies: copies[..., ::-1, :],
    "turned": lambda copies: np.rot90(copies, 1, (2, 3)),
    "transposed": lambda copies: copies.swapaxes(2, 3),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_copies_of_pictures_are_near(change):
    assert near(CHANGES[change](PICTURES[:50]), PICTURES[:400]).mean() > 0.9
    assert not near(PICTURES[400:], PICTURES[:400]).any()


def test_copies_of_windows_and_vectors_are_near_whatever_the_units_and_the_other_copies():
    signals = RNG.normal(size=(600, 2, 40)).cumsum(axis=2) * [[1e-3], [1e6]]
    copies = signals[:30] * (1 + 1e-4 * RNG.normal(size=(30, 2, 40)))
    assert near(copies, signals[:500]).all() and near(copies[..., ::-1], signals[:500]).all()
    assert not near(signals[500:], signals[:500]).any()
    vectors = RNG.normal(size=(3000, 5, 1)) * np.array([1, 10, 100, 1e-3, 1e4])[:, None]
    many = np.repeat(vectors[:200], 12, axis=0) * (1 + 1e-5 * RNG.normal(size=(2400, 5, 1)))  # augmented, then split
    assert near(many[1::2][:100], many[::2]).mean() > 0.9
    assert not near(vectors[2500:], vectors[:2500]).any()


@pytest.mark.parametrize("name", ["digits", "waveforms", "patches"])
def test_real_and_generated_data_have_few_near_duplicates(name, tmp_path):
    splits = find_dataset(name).loaded(Store(None, tmp_path, offline=True), {})
    assert near(splits.test, splits.train).mean() < 0.02


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("change", [lambda values: values * np.nan, lambda values: values * 1e300])
def test_values_beyond_numbers_have_no_near_ones(change):
    values = change(RNG.normal(size=(100, 2, 16)))
    assert not near(values[:5], values).any() and not near(values[:1], values[:1]).any()


def test_few_equal_or_constant_events_have_no_near_ones():
    zeros = np.zeros((100, 1, 4, 4), np.uint8)
    assert not near(PICTURES[:20], PICTURES[:20]).any() and not near(zeros[:5], zeros).any()


def test_events_of_many_entries_are_compared_in_little_memory():
    wide = RNG.normal(size=(40, 200_000, 1)).astype(np.float32)  # whose identity matrix would take 160 GB
    assert near(wide[:2] + np.float32(1e-4), wide).all()
