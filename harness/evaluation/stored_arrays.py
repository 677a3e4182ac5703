"""Arrays to store beside a record: nearest training examples.

A flow that reproduces its training data generates samples far nearer to some training example than held-out events are.
The distance is Euclidean over all entries: for images in 8-bit units (levels spread over 0..255), for other events with
each channel's range in the training split as [-1, 1). The compared values are those of the data, unpermuted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from harness.pipeline.pipeline import Pipeline, SplitValues

QUERIES = 24  # samples, and as many held-out events
CHUNK_ENTRIES = 2**22  # entries of training values at once: 32 MiB in float64
LOOKED_AT_ENTRIES = 2**28  # entries of the training split in all: 87,381 images of 3 x 32 x 32


def neighbour_arrays(pipeline: Pipeline, data: np.ndarray, samples: np.ndarray) -> dict[str, np.ndarray]:
    """Return the training neighbours of the first samples, and of as many held-out events, as arrays to store.

    `data` and `samples` are (N, *shape) in the units of the data, as many of each.

    Returns:
        For x in "data" and "samples": `x_neighbour_index` (Q,) in the training split and `x_neighbour_distance` (Q,),
        float64; and `neighbours_searched`, the number of training examples searched.
    """
    train = pipeline.raw("train")
    half = min(QUERIES, len(data))
    queries = torch.from_numpy(np.concatenate([data[:half], samples[:half]])).to(pipeline.device)
    index, distance = nearest(queries, train, embedding(pipeline))  # both in one pass over the split
    arrays = {"neighbours_searched": np.array(len(positions(train, pipeline.dim)))}
    for name, part in (("data", slice(half)), ("samples", slice(half, None))):
        arrays[f"{name}_neighbour_index"] = index[part].numpy()
        arrays[f"{name}_neighbour_distance"] = distance[part].numpy() * unit(pipeline)
    return arrays


def embedding(pipeline: Pipeline) -> Callable[[Tensor], Tensor]:
    """Return a function from values (N, *shape) to (N, D) in float64, whose distance times `unit` is reported.

    Levels stay whole numbers, whose squares and products float64 sums exactly.
    """
    if pipeline.levels is not None:
        return lambda values: values.double().flatten(1)
    return lambda values: pipeline.preprocessing(values.double())[0].flatten(1)


def unit(pipeline: Pipeline) -> float:
    """Return one level in 8-bit units; 1 for events without levels."""
    return 1.0 if pipeline.levels is None else 255 / (pipeline.levels - 1)


def positions(train: SplitValues, dim: int, most: int = LOOKED_AT_ENTRIES) -> Tensor:
    """Return the indices of the searched training examples: all, or evenly spaced ones beyond `most` entries."""
    return torch.arange(0, len(train), -(-len(train) * dim // most))


@torch.no_grad()
def nearest(
    queries: Tensor,
    train: SplitValues,
    embed: Callable[[Tensor], Tensor],
    chunk_entries: int = CHUNK_ENTRIES,
    most: int = LOOKED_AT_ENTRIES,
) -> tuple[Tensor, Tensor]:
    """Return the nearest training example of each query, part by part: |q - t|^2 = |q|^2 + |t|^2 - 2 q.t.

    Args:
        queries: (Q, *shape), on the device of `train`.
        train: training values, of which at most `chunk_entries` entries are in memory at once.
        embed: values -> (N, D).
        most: number of entries of the split to search (see `positions`).

    Returns:
        Its index in the split and its distance, each (Q,), on the CPU. The distance is recomputed from the difference,
        so that it is 0 for an equal example.
    """
    points = embed(queries)
    dim = points.shape[1]
    best = torch.full((len(points),), torch.inf, dtype=torch.float64, device=points.device)
    index = torch.zeros(len(points), dtype=torch.int64)
    for part in positions(train, dim, most).split(max(1, chunk_entries // dim)):
        examples = embed(train[part])
        lowest, place = torch.addmm(examples.square().sum(1), points, examples.T, alpha=-2).min(1)
        nearer = lowest < best
        best = torch.where(nearer, lowest, best)
        index = torch.where(nearer.cpu(), part[place.cpu()], index)
    return index, (points - embed(train[index])).norm(dim=1).cpu()
