"""Held-out events that equal training events, and windows that overlap training windows; and what only looks alike."""

import numpy as np
import pytest

from harness.pipeline.overlap import find_overlap

RNG = np.random.default_rng(0)


def windows(values: np.ndarray, length: int, stride: int) -> np.ndarray:
    """Return the windows (N, C, length) of values (C, n)."""
    views = np.lib.stride_tricks.sliding_window_view(values, length, axis=1)
    return views[:, ::stride].swapaxes(0, 1).copy()


def walk(channels: int, steps: int) -> np.ndarray:
    return np.rint(30 * RNG.normal(size=(channels, steps)).cumsum(1)).astype(np.int32)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
def test_equal_events_are_counted_in_every_type(dtype):
    events = RNG.integers(0, 200, (90, 3, 4, 4)).astype(dtype)
    held_out = np.concatenate([events[[3, 5, 5]], events[80:]])
    assert find_overlap(held_out, events[:80]).equal == 3
    signed = np.zeros((1, 1, 2, 2), np.float32)
    assert find_overlap(-signed, signed).equal == 1  # -0.0 equals 0.0


@pytest.mark.parametrize(("length", "stride", "dtype"), [(16, 8, np.int32), (64, 7, np.int32), (64, 40, np.float64)])
def test_windows_of_one_recording_that_overlap_are_found_at_any_shift(length, stride, dtype):
    every = windows(walk(2, 3000).astype(dtype), length, stride)
    order = RNG.permutation(len(every))
    cut = len(every) // 4
    held_out, training = every[order[:cut]], every[order[cut:]]
    shifts = np.abs(order[:cut, None] - order[None, cut:]).min(axis=1) * stride
    overlap = find_overlap(held_out, training)
    assert overlap.equal == 0 and overlap.sharing == (shifts < length - 7).sum() > cut / 2
    assert find_overlap(every[-20:], every[: -20 - length // stride - 1]).share == 0  # split in time


def test_a_window_of_which_few_samples_were_changed_overlaps():
    training = windows(walk(1, 4000), 64, 64)
    held_out = training[::10].copy()
    held_out[:, :, ::20] += 1
    overlap = find_overlap(held_out, training)
    assert (overlap.equal, overlap.sharing) == (0, len(held_out))


def test_flat_lines_padding_and_like_beats_are_no_overlap():
    noise = windows(walk(1, 6400), 64, 64)
    noise[:, :, 20:] = 7  # padded
    assert find_overlap(noise[:20], noise[20:]).share == 0
    beat = RNG.integers(50, 200, 30)
    for noise_levels in (1, 3):  # the same beat at irregular times, on a flat line and among noise
        beats = RNG.integers(0, noise_levels, 64_000)
        for begin in 128 * np.arange(500) + RNG.integers(40, 60, 500):
            beats[begin : begin + 30] = beat if noise_levels > 1 else np.resize([60, 20, 70], 30) * (np.arange(30) < 10)
        every = windows(beats[None].astype(np.int16), 128, 128)
        every[:, 0, -1] = np.arange(500)  # no two are equal
        assert find_overlap(every[250:], every[:250]).share < 0.01
    slow = windows(np.rint(RNG.normal(size=(1, 40_000)).cumsum(1) / 3).astype(np.int16), 64, 64)
    assert find_overlap(slow[500:], slow[:500]).share == 0
