"""Held-out events that equal others, windows and patches that overlap others; and what only looks alike."""

import numpy as np
import pytest

from harness.pipeline.overlap import digests, overlapping

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


@pytest.mark.parametrize(("length", "stride", "dtype"), [(16, 8, np.int32), (64, 7, np.int32), (64, 40, np.float64)])
def test_windows_of_one_recording_that_overlap_are_found_at_any_shift(length, stride, dtype):
    every = windows(walk(2, 3000).astype(dtype), length, stride)
    order = RNG.permutation(len(every))
    cut = len(every) // 4
    held_out, training = every[order[:cut]], every[order[cut:]]
    shifts = np.abs(order[:cut, None] - order[None, cut:]).min(axis=1) * stride
    assert overlapping(held_out, training).sum() == (shifts < length - 7).sum() > cut / 2
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


def test_a_window_of_which_few_samples_were_changed_overlaps():
    training = windows(walk(1, 4000), 64, 64)
    held_out = training[::10].copy()
    held_out[:, :, ::20] += 1
    assert overlapping(held_out, training).all() and not set(digests(held_out)) & set(digests(training))


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
