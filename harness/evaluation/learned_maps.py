"""Matrices of a trained layer, small enough to be stored beside a record and drawn from it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from flows import Flow
from harness.core.records import MAP
from layers import InvertibleLinear

LARGEST = 1024  # D up to which a matrix is formed
SIDE = 128  # largest number of cells along a side of a stored matrix


@torch.no_grad()
def learned_maps(flow: Flow) -> dict[str, np.ndarray]:
    """Return the matrix of the first layer under test with D <= 1024, and its factors if it has some; else nothing.

    Returns:
        Name of an array -> (m, m) in float16, m <= 128: "map <path>", then "map <path> 1: <name>" and so on for the
        factors in the order of application. In a reduced matrix, each cell holds the entry of the largest magnitude,
        with its sign, so that single entries do not fade. An entry that is not a finite number is 0.
    """
    for path, layer in flow.linear_layers():
        if path.endswith("/layer") and isinstance(layer, InvertibleLinear) and layer.dim <= LARGEST:
            maps = {f"{MAP}{path}": reduced(layer.dense())}
            factors = enumerate(layer.factors(), start=1)
            return maps | {f"{MAP}{path} {number}: {name}": reduced(factor) for number, (name, factor) in factors}
    return {}


def reduced(matrix: Tensor) -> np.ndarray:
    """Return a square matrix in at most SIDE x SIDE cells, each its entry of the largest magnitude."""
    values = matrix.detach().cpu().double().numpy()
    values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    side = -(-len(values) // -(-len(values) // SIDE))
    step = -(-len(values) // side)
    padded = np.zeros((side * step, side * step))
    padded[: len(values), : len(values)] = values
    cells = padded.reshape(side, step, side, step).swapaxes(1, 2).reshape(side, side, step * step)
    largest = np.abs(cells).argmax(-1)
    kept = np.take_along_axis(cells, largest[..., None], -1)[..., 0]
    limit = float(np.finfo(np.float16).max)
    return kept.clip(-limit, limit).astype(np.float16)
