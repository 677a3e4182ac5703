"""What a trained layer became, as matrices small enough to keep beside a record and to be drawn from it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from flows import Flow
from harness.records import MAP
from layers import InvertibleLinear, block_factors
from layers.butterfly import Butterfly

LARGEST = 1024  # D up to which a matrix is formed
SIDE = 128  # cells along a side of what is kept


@torch.no_grad()
def learned_maps(flow: Flow) -> dict[str, np.ndarray]:
    """The matrix of the first layer under test with D <= 1024, and for a butterfly its factors; nothing beyond.

    Args:
        flow: with the weights that were evaluated.

    Returns:
        Name of an array -> (m, m) in float16, m <= 128: "map <path>", then for a butterfly "map <path> 1: B(level, D)",
        or "... 1: radix p, stride s", and so on, of its factors in the order of application. Of a larger matrix, each
        cell holds the entry of the largest magnitude, with its sign, so that single entries do not fade. What is not a
        finite number is 0.
    """
    for path, layer in flow.linear_layers():
        if path.endswith("/layer") and isinstance(layer, InvertibleLinear) and layer.dim <= LARGEST:
            maps = {f"{MAP}{path}": reduced(layer.dense())}
            if isinstance(layer, Butterfly):
                for number, (name, factor) in enumerate(factors(layer), start=1):
                    maps[f"{MAP}{path} {number}: {name}"] = reduced(factor)
            return maps
    return {}


def factors(layer: Butterfly) -> list[tuple[str, Tensor]]:
    """(name, matrix) of every factor, in the order of application; one of a part is as large as the part."""
    if layer.mixed is not None:
        return [
            (f"radix {stage.radix}, stride {stage.stride * stage.width}", matrix.to_dense())
            for stage, matrix in layer.mixed.factors()
        ]
    weight = layer.weight.permute(2, 0, 1) if layer.block_size == 1 else layer.pairs.matrices()
    pieces = weight.split(layer.plan.lengths) if layer.plan.lengths else ()
    return [
        (factor_name(layer, level, blocks), block_factors.factor_matrix(matrices, level, blocks).to_dense())
        for (level, blocks), matrices in zip(factor_places(layer), pieces, strict=True)
    ]


def factor_places(layer: Butterfly) -> list[tuple[int, int]]:
    """(level, blocks of its part) of every factor, in the order of application."""
    return [(level, part.size) for part in layer.plan.parts for level in part.levels]


def factor_name(layer: Butterfly, level: int, blocks: int) -> str:
    """B(i, D), block-wise B(i, D, C), as ButterflyFlow (Meng et al., ICML 2022) writes a factor."""
    width = layer.block_size
    return f"B({level}, {blocks * width}{f', {width}' if width > 1 else ''})"


def reduced(matrix: Tensor) -> np.ndarray:
    """A square matrix in at most SIDE x SIDE cells, each its entry of the largest magnitude."""
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
