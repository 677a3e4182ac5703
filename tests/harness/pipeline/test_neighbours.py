"""Near duplicates: copies with little noise, mirrored or turned ones, and data that only look alike."""

import numpy as np
import pytest

from harness.datasets import Store, find_dataset
from harness.pipeline.neighbours import Neighbours

RNG = np.random.default_rng(0)


def pictures(count: int) -> np.ndarray:
    """Return smooth pictures of much the same brightness range with some noise, (count, 1, 12, 12)."""
    rows, columns = np.mgrid[:12, :12] / 12
    waves = RNG.normal(size=(6, count, 3, 1, 1))
    light = sum(20 * a * np.sin(5 * (b * rows + c * columns)) for a, b, c in waves.swapaxes(1, 2))
    return np.clip(128 + light + 3 * RNG.normal(size=(count, 12, 12)), 0, 255).astype(np.uint8)[:, None]


PICTURES = pictures(500)


def among(events: np.ndarray) -> Neighbours:
    return Neighbours(events, events)


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
    neighbours = among(PICTURES[:400])
    assert neighbours.near(CHANGES[change](PICTURES[:50])).mean() > 0.9
    assert not neighbours.near(PICTURES[400:]).any() and neighbours.usual == 0


def test_copies_of_windows_and_vectors_are_near_whatever_the_units_and_the_other_copies():
    signals = RNG.normal(size=(600, 2, 40)).cumsum(axis=2) * [[1e-3], [1e6]]
    copies = signals[:30] * (1 + 1e-4 * RNG.normal(size=(30, 2, 40)))
    assert among(signals[:500]).near(copies).all() and among(signals[:500]).near(copies[..., ::-1]).all()
    assert not among(signals[:500]).near(signals[500:]).any()
    vectors = RNG.normal(size=(3000, 5, 1)) * np.array([1, 10, 100, 1e-3, 1e4])[:, None]
    many = np.repeat(vectors[:200], 12, axis=0) * (1 + 1e-5 * RNG.normal(size=(2400, 5, 1)))  # augmented, then split
    neighbours = among(many[::2])
    assert neighbours.near(many[1::2][:100]).mean() > 0.9 and neighbours.usual > 0.9
    assert not among(vectors[:2500]).near(vectors[2500:]).any()


@pytest.mark.parametrize("name", ["digits", "waveforms", "patches"])
def test_real_and_generated_data_have_few_near_duplicates(name, tmp_path):
    splits = find_dataset(name).loaded(Store(None, tmp_path, offline=True), {})
    assert among(splits.train).near(splits.test).mean() < 0.02


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("change", [lambda values: values * np.nan, lambda values: values * 1e300])
def test_values_beyond_numbers_have_no_near_ones(change):
    values = change(RNG.normal(size=(100, 2, 16)))
    assert not among(values).near(values[:5]).any() and among(values).usual == 0
    assert not among(values[:1]).near(values[:1]).any()


def test_copies_among_few_events_are_near_in_the_units_of_training():
    jittered = np.repeat(PICTURES[:8], 8, axis=0) + RNG.integers(0, 2, (64, 1, 12, 12)).astype(np.uint8)
    assert Neighbours(jittered, PICTURES).usual > 0.8


def test_few_equal_or_constant_events_have_no_near_ones():
    assert not among(PICTURES[:20]).near(PICTURES[:20]).any()
    zeros = np.zeros((100, 1, 4, 4), np.uint8)
    assert not among(zeros).near(zeros[:5]).any()


def test_events_of_many_entries_are_compared_in_little_memory():
    wide = RNG.normal(size=(40, 200_000, 1)).astype(np.float32)  # whose identity matrix would take 160 GB
    assert among(wide).near(wide[:2] + np.float32(1e-4)).all()
