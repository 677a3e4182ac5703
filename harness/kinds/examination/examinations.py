"""Properties of a layer as a matrix: of each, its computation, the measures that it fills, and the text of its table.

torch is imported where a property is computed: settings, plans and reports need the names alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.core.records import Record, blank_record
from harness.core.settings import LayerRef, Progress

if TYPE_CHECKING:
    from harness.kinds.examination.trial import ExaminationTrial
    from layers import InvertibleLinear

Property = Literal["mixing", "permutations", "block_determinant"]

DRAWS = 100
PERTURBATION = 0.3  # of every parameter, so that no entry is zero by its initialisation alone
LISTED = 4  # sizes of classes
VISIBLE = 1e-12  # relative to the largest entry, in float64; what is smaller is rounding


@dataclass(frozen=True)
class Examination:
    """One property.

    Attributes:
        compute: function of a layer, its event shape and the 1x1 convolution before it ("none": none) that returns the
            measures; raises `UnsupportedShape` where they are not defined.
        caption: of its table.
        measures: name -> (type in results.csv, heading, format).
    """

    compute: Callable[[LayerRef, tuple[int, ...], str], dict[str, Any]]
    caption: str
    measures: Mapping[str, tuple[str, str, Callable[[Any], str]]]


def mixing(layer: LayerRef, shape: tuple[int, ...], mixer: str) -> dict[str, Any]:
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

    from layers.base import push_identity

    parts = [layer]
    if mixer != "none":
        parts.append(LayerRef(row="mixer", layer="conv1x1", options=(("parameterisation", mixer),)))
    paths = [push_identity(_built(part, shape, seed)).abs() for seed, part in enumerate(parts)]
    reach = paths[0] if len(paths) == 1 else paths[0] @ paths[1]
    support = (reach > VISIBLE * reach.max()).numpy()
    classes, labels = connected_components(csr_matrix(support), directed=False)
    sizes = np.bincount(labels)
    ordered = sorted(map(int, sizes), reverse=True)
    counted = [f"{ordered.count(n)} x {n}" for n in dict.fromkeys(ordered)]  # many are counted, few are a sum
    return {
        "density": float(support.mean()),
        "classes": int(classes),
        "sizes": " + ".join(map(str, ordered) if classes <= LISTED else counted),
        "log10_permutations": (sum(math.lgamma(n + 1) for n in sizes) - math.lgamma(len(support) + 1)) / math.log(10),
    }


def permutations(layer: LayerRef, shape: tuple[int, ...], mixer: str) -> dict[str, Any]:
    """Reproduce random permutations of D = 2^k entries by butterflies of levels 1, ..., k, ..., 1.

    Returns:
        factors: 2k - 1.
        realised: how many of DRAWS random ones are reproduced exactly.
        log10_one_pass: log10 of the largest share of all D! that k factors of different levels could hold,
            2^(k D / 2) / D!. Exactly one path of them joins an input to an output, so nothing cancels, and in a product
            that permutes every 2x2 matrix passes or swaps its pair.
    """
    import torch

    from layers import UnsupportedShape
    from layers.butterflies.permutations import benes_levels, butterfly_from_permutation

    size = math.prod(shape)
    if layer.layer != "butterfly" or mixer != "none":
        raise UnsupportedShape("permutations: asked of butterflies alone, without a 1x1 before them")
    if size & (size - 1):
        raise UnsupportedShape(f"permutations: D = {size} is no power of two, of which alone it is claimed")
    generator = torch.Generator().manual_seed(0)
    x = torch.arange(size, dtype=torch.float32).reshape(1, *shape)
    realised = 0
    for _ in range(DRAWS):
        order = torch.randperm(size, generator=generator)
        with torch.no_grad():
            y, log_det = butterfly_from_permutation(order, shape)(x)
        realised += bool((y.flatten() == x.flatten()[order]).all()) and float(log_det) == 0
    levels = size.bit_length() - 1
    one_pass = (levels * size / 2 * math.log(2) - math.lgamma(size + 1)) / math.log(10)
    return {
        "factors": len(benes_levels(size)),
        "realised": realised,
        "draws": DRAWS,
        "log10_one_pass": min(0.0, one_pass),
    }


def block_determinant(layer: LayerRef, shape: tuple[int, ...], mixer: str) -> dict[str, Any]:
    """Compute the determinant of one pair of C x C blocks from the matrix and from the LU factors of its four blocks.

    The layer maps D = 2C entries by [[A, B], [C, D]]. What the LU factors of the blocks give are their determinants, of
    which |det A det D - det B det C| is the determinant of the whole where C = 1.

    Returns:
        layer_error: the layer's log|det| against the matrix's, the largest over DRAWS weights, in nats.
        blocks_error: the same for what the blocks' determinants give, the median.
    """
    import torch

    from layers import UnsupportedShape
    from layers.base import push_identity
    from layers.butterfly import Butterfly

    half = math.prod(shape) // 2
    errors, errors_of_blocks = [], []
    for seed in range(DRAWS):
        built = _built(layer, shape, seed)
        if not isinstance(built, Butterfly) or built.block_size != half:
            raise UnsupportedShape(f"block_determinant: asked of one pair of blocks; give block_size: {half}")
        weight = push_identity(built)
        truth = torch.linalg.slogdet(weight).logabsdet
        a, b, c, d = (torch.linalg.det(weight[i : i + half, j : j + half]) for i in (0, half) for j in (0, half))
        with torch.no_grad():
            _, claimed = built(torch.zeros(1, *shape, dtype=weight.dtype))
        errors.append(float((claimed - truth).abs()))
        errors_of_blocks.append(float(((a * d - b * c).abs().log() - truth).abs()))
    return {"block_size": half, "layer_error": max(errors), "blocks_error": sorted(errors_of_blocks)[DRAWS // 2]}


def run(
    trial: ExaminationTrial, root: Path | None, out: Path, progress: Progress, checkpoints: object = None
) -> Record:
    """Examine the layer of a trial; a shape that it cannot serve is an outcome."""
    from layers import UnsupportedShape

    record = blank_record(trial, "ok", None)
    try:
        measures = EXAMINATIONS[trial.examine].compute(trial.layer, trial.shape, trial.mixer)
    except UnsupportedShape as error:
        return blank_record(trial, "unsupported", str(error))
    record.rows = [{"layer": trial.layer.row, "dataset": trial.label} | measures]
    progress(1.0, ", ".join(f"{name} {value}" for name, value in measures.items()))
    return record


def _built(layer: LayerRef, shape: tuple[int, ...], seed: int) -> InvertibleLinear:
    """Return the layer in float64, away from its initialisation."""
    import torch

    from flows import seeded
    from harness.pipeline.models import make_layer
    from harness.timing.operations import perturb

    with seeded(seed, layer.row):
        built = make_layer(layer, shape).double()
    with torch.no_grad():
        perturb(built, PERTURBATION, torch.Generator().manual_seed(seed))
    return built


def power(value: float) -> str:
    """Return a number as text from its decimal logarithm."""
    return "1" if value > -1e-9 else f"10^{value:,.0f}" if value <= -3 else f"{10**value:.2g}"


EXAMINATIONS: dict[Property, Examination] = {
    "mixing": Examination(
        mixing,
        "Which entries can come together, with weights drawn at random: entries of two classes are joined by no "
        "product of such layers.",
        {
            "density": ("Float64 in [0, 1]", "nonzero entries of W", lambda value: f"{100 * value:.3g} %"),
            "classes": ("Int64 >= 0", "classes that never mix", str),
            "sizes": ("string", "their entries", str),
            "log10_permutations": ("Float64", "share of all permutations that keep them", power),
        },
    ),
    "permutations": Examination(
        permutations,
        "Permutations of D = 2^k entries as butterflies of levels 1, ..., k, ..., 1.",
        {
            "factors": ("Int64 >= 0", "factors, 2k - 1", str),
            "realised": ("Int64 >= 0", "random permutations reproduced exactly", str),
            "draws": ("Int64 >= 0", "of", str),
            "log10_one_pass": ("Float64", "at most within reach of k factors", power),
        },
    ),
    "block_determinant": Examination(
        block_determinant,
        "log|det| of one pair of C x C blocks, in float64 over random weights: the layer's largest error, and the "
        "median error of |det A det D - det B det C|, all that the LU factors of the four blocks give.",
        {
            "block_size": ("Int64 >= 0", "block size C", str),
            "layer_error": ("Float64 >= 0", "error of the layer's log-det, nats", "{:.1e}".format),
            "blocks_error": ("Float64 >= 0", "error of what the blocks' LU factors give, nats", "{:.1e}".format),
        },
    ),
}
