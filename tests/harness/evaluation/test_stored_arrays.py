"""The arrays that a trial keeps: training examples nearest to samples."""

import math

import numpy as np
import pytest
import torch

from harness.core.settings import DataRef
from harness.datasets.base import Splits
from harness.evaluation.stored_arrays import QUERIES, embedding, nearest, neighbour_arrays, positions
from harness.pipeline.pipeline import Pipeline, SplitValues


def flat(values):
    return values.double().flatten(1)


def toy(kind, seed=0):
    draw = np.random.default_rng(seed)
    sizes = (150, 30, 40)
    if kind == "image":
        parts = [draw.integers(0, 17, (n, 3, 4, 4)).astype(np.uint8) for n in sizes]
        return Splits(*parts, levels=17, description="toy")
    scale = np.array([1, 50])[:, None]
    parts = [(draw.normal(size=(n, 2, 8)) * scale * 20).round().astype(np.int16) for n in sizes]
    return Splits(*parts, levels=None, description="toy")


def by_hand(queries, train, scale):
    """Return all distances, computed one by one."""
    rows = [[math.sqrt((((q.astype(float) - t) * scale) ** 2).sum()) for t in train.astype(float)] for q in queries]
    return np.argmin(rows, axis=1), np.min(rows, axis=1)


@pytest.mark.parametrize("chunk", [48, 7 * 48, 10**6])
def test_neighbours_equal_those_of_an_exhaustive_search(chunk):
    data = toy("image")
    queries = np.concatenate([data.test, data.train[[0, 77, 149]]])
    index, distance = nearest(torch.from_numpy(queries), SplitValues(data.train), flat, chunk_entries=chunk)
    places, distances = by_hand(queries, data.train, 1)
    assert np.array_equal(index.numpy(), places) and np.allclose(distance, distances, rtol=1e-12)
    assert index[-3:].tolist() == [0, 77, 149] and distance[-3:].tolist() == [0, 0, 0], "the first and last count too"


@pytest.mark.parametrize("permute", [None, 4])
@pytest.mark.parametrize("kind", ["image", "sequence"])
def test_neighbours_are_stored_in_the_units_of_the_data(kind, permute):
    """8-bit units for pixels; for sequences each channel's training range scaled to [-1, 1)."""
    data = toy(kind)
    scale = 255 / 16
    if kind == "sequence":
        low, high = (getattr(data.train, name)(axis=(0, 2)).astype(float) for name in ("min", "max"))
        scale = (2 / (high + 1 - low))[:, None]
    samples = toy(kind, seed=1).test
    pipeline = Pipeline(data, DataRef(label="toy", name="toy", permute=permute))
    arrays = neighbour_arrays(pipeline, data.test, samples)
    for name, queries in (("data", data.test[:QUERIES]), ("samples", samples[:QUERIES])):
        places, distances = by_hand(queries, data.train, scale)
        assert np.array_equal(arrays[f"{name}_neighbour_index"], places)
        assert np.allclose(arrays[f"{name}_neighbour_distance"], distances, rtol=1e-9)
    assert arrays["neighbours_searched"] == 150


class Watched(SplitValues):
    """Record the sizes of all requests."""

    def __init__(self, values):
        super().__init__(values)
        self.asked = []

    def __getitem__(self, chosen):
        part = super().__getitem__(chosen)
        self.asked.append(part.numel())
        return part


def test_a_large_split_is_read_in_parts_and_pixels_are_not_rounded():
    train = Watched(np.zeros((1000, 1, 4, 4), dtype=np.uint8))
    queries = torch.ones(3, 1, 4, 4, dtype=torch.uint8)
    index, distance = nearest(queries, train, flat, chunk_entries=320, most=4000)
    assert max(train.asked) <= 320 and sum(train.asked) <= 4000 + 3 * 16
    assert distance.tolist() == [4.0] * 3 and set(index.tolist()) <= set(positions(train, 16, 4000).tolist())
    assert positions(train, 16, 4000).tolist() == list(range(0, 1000, 4)), "evenly spaced"
    assert len(positions(train, 16)) == 1000
    # Images that differ by one level in one entry have a positive distance, however bright.
    train = np.full((64, 3, 32, 32), 255, dtype=np.uint8)
    train[np.arange(64), 0, np.arange(64) % 32, 0] = 254
    pipeline = Pipeline(Splits(train, train[:1], train[:1], 256, "bright"), DataRef(label="toy", name="toy"))
    index, distance = nearest(torch.from_numpy(train[:32]), pipeline.raw("train"), embedding(pipeline))
    assert index.tolist() == list(range(32)) and distance.abs().max() == 0
