"""An examination trial: properties of one layer as a matrix. No data, no training."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from flows import seeded
from harness.core.records import Record, blank_record
from harness.core.settings import LayerRef, Progress
from harness.kinds.examination.trial import ExaminationTrial
from harness.pipeline.models import make_layer
from harness.timing.operations import perturb
from layers import InvertibleLinear, UnsupportedShape
from layers.base import push_identity
from layers.butterflies.permutations import benes_levels, butterfly_from_permutation
from layers.butterfly import Butterfly

DRAWS = 100
PERTURBATION = 0.3  # of every parameter, so that no entry is zero by its initialisation alone
LISTED = 4  # sizes of classes
VISIBLE = 1e-12  # relative to the largest entry, in float64; what is smaller is rounding


def run(
    trial: ExaminationTrial, root: Path | None, out: Path, progress: Progress, checkpoints: object = None
) -> Record:
    """Examine one layer; a shape that it cannot serve is an outcome."""
    record = blank_record(trial, "ok", None)
    try:
        found = EXAMINATIONS[trial.examine](trial)
    except UnsupportedShape as error:
        return blank_record(trial, "unsupported", str(error))
    record.rows = [{"layer": trial.layer.row, "dataset": trial.label} | found]
    progress(1.0, ", ".join(f"{name} {value}" for name, value in found.items()))
    return record


def mixing(trial: ExaminationTrial) -> dict[str, Any]:
    """Return which entries a layer, with the 1x1 before it where the trial has one, can bring together.

    Weights are drawn at random, so that an entry of W is zero only where the layer has no path. Entries are of one
    class if a chain of nonzero entries of W joins them; no product of such layers joins two classes. A permutation
    that keeps every class is one of prod(n_c!) among D!.

    Returns:
        density: the share of nonzero entries of W.
        classes: how many there are.
        sizes: how many entries they hold, "512 + 256 + 16".
        log10_permutations: log10(prod(n_c!) / D!), 0 where all entries are of one class.
    """
    import numpy as np
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    parts = [trial.layer]
    if trial.mixer != "none":
        parts.append(LayerRef(row="mixer", layer="conv1x1", options=(("parameterisation", trial.mixer),)))
    paths = [push_identity(_built(layer, trial.shape, seed)).abs() for seed, layer in enumerate(parts)]
    reach = paths[0] if len(paths) == 1 else paths[0] @ paths[1]
    support = (reach > VISIBLE * reach.max()).numpy()
    classes, labels = connected_components(csr_matrix(support), directed=False)
    sizes = np.bincount(labels)
    return {
        "density": float(support.mean()),
        "classes": int(classes),
        "sizes": _sum(sorted(map(int, sizes), reverse=True)),
        "log10_permutations": (sum(_log_factorial(n) for n in sizes) - _log_factorial(len(support))) / math.log(10),
    }


def permutations(trial: ExaminationTrial) -> dict[str, Any]:
    """Reproduce random permutations of D = 2^k entries by butterflies of levels 1, ..., k, ..., 1.

    Returns:
        factors: 2k - 1.
        realised: how many of DRAWS random ones are reproduced exactly.
        log10_one_pass: log10 of the largest share of all D! that k factors of different levels could hold,
            2^(k D / 2) / D!. Exactly one path of them joins an input to an output, so nothing cancels, and in a product
            that permutes every 2x2 matrix passes or swaps its pair.
    """
    size = math.prod(trial.shape)
    if trial.layer.layer != "butterfly" or trial.mixer != "none":
        raise UnsupportedShape("permutations: asked of butterflies alone, without a 1x1 before them")
    if size & (size - 1):
        raise UnsupportedShape(f"permutations: D = {size} is no power of two, of which alone it is claimed")
    generator = torch.Generator().manual_seed(0)
    x = torch.arange(size, dtype=torch.float32).reshape(1, *trial.shape)
    realised = 0
    for _ in range(DRAWS):
        order = torch.randperm(size, generator=generator)
        with torch.no_grad():
            y, log_det = butterfly_from_permutation(order, trial.shape)(x)
        realised += bool((y.flatten() == x.flatten()[order]).all()) and float(log_det) == 0
    levels = size.bit_length() - 1
    one_pass = (levels * size / 2 * math.log(2) - _log_factorial(size)) / math.log(10)
    return {
        "factors": len(benes_levels(size)),
        "realised": realised,
        "draws": DRAWS,
        "log10_one_pass": min(0.0, one_pass),
    }


def block_determinant(trial: ExaminationTrial) -> dict[str, Any]:
    """Compute the determinant of one pair of C x C blocks from the matrix and from the LU factors of its four blocks.

    The layer maps D = 2C entries by [[A, B], [C, D]]. What the LU factors of the blocks give are their determinants, of
    which |det A det D - det B det C| is the determinant of the whole where C = 1.

    Returns:
        layer_error: the layer's log|det| against the matrix's, the largest over DRAWS weights, in nats.
        blocks_error: the same for what the blocks' determinants give, the median.
    """
    half = math.prod(trial.shape) // 2
    own, blocks = [], []
    for seed in range(DRAWS):
        layer = _built(trial.layer, trial.shape, seed)
        if not isinstance(layer, Butterfly) or layer.block_size != half:
            raise UnsupportedShape(f"block_determinant: asked of one pair of blocks; give block_size: {half}")
        weight = push_identity(layer)
        truth = torch.linalg.slogdet(weight).logabsdet
        a, b, c, d = (torch.linalg.det(weight[i : i + half, j : j + half]) for i in (0, half) for j in (0, half))
        with torch.no_grad():
            _, claimed = layer(torch.zeros(1, *trial.shape, dtype=weight.dtype))
        own.append(float((claimed - truth).abs()))
        blocks.append(float(((a * d - b * c).abs().log() - truth).abs()))
    return {"block_size": half, "layer_error": max(own), "blocks_error": sorted(blocks)[len(blocks) // 2]}


EXAMINATIONS: dict[str, Callable[[ExaminationTrial], dict[str, Any]]] = {
    examination.__name__: examination for examination in (mixing, permutations, block_determinant)
}


def _built(layer: LayerRef, shape: tuple[int, ...], seed: int) -> InvertibleLinear:
    """Return the layer in float64, away from its initialisation."""
    with seeded(seed, layer.row):
        built = make_layer(layer, shape).double()
    with torch.no_grad():
        perturb(built, PERTURBATION, torch.Generator().manual_seed(seed))
    return built


def _sum(sizes: list[int]) -> str:
    """Return up to a few numbers each as a sum, more of them by how often they occur."""
    if len(sizes) <= LISTED:
        return " + ".join(map(str, sizes))
    return " + ".join(f"{sizes.count(n)} x {n}" for n in dict.fromkeys(sizes))


def _log_factorial(n: int) -> float:
    return math.lgamma(n + 1)
