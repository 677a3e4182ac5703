"""Butterfly factors several at a time: up to `MOST_LEVELS` of them become one batch of small dense matrices.

Write the place of an entry as bits b_1 b_2 ... (b_1 selects the half of D) and a rest. A factor of level l
changes bit l alone, with weights that depend on all others. A run of g factors of different levels, in any order,
therefore takes g bits from i to o, and maps each group of 2^g entries that agree in all else, k, by one matrix:

    M_k[o, i] = product over the levels l of the run of W_l[o_l, i_l; o of the levels before, i of those after; k].

There is no sum in it: every bit changes once, so there is one way from each i to each o. Multiplying the matrices
out takes D 2^g numbers (far fewer if the diagonals are shared), whatever the batch; then one batched matrix product
applies the whole run to all events. That is 2^(g+1) D operations per event in place of 3 g D, in one pass over the
data in place of g, and at the speed of matrix products.

The results are those of `layers.butterflies.pairs`, up to rounding. It uses torch's own operations, and so supports
derivatives of every order, complex weights and every device.

Callers check `pays(plan, N)` and call `apply` and `apply_inverse` of this module or of `layers.butterflies.pairs`,
which have the same arguments and results. For a small batch, multiplying out costs more than it saves:

    ms, float32                    forward             forward + backward
                      batch   by level   fused         by level   fused
    D = 3072, 10 levels   1       0.77    1.24             2.05    4.12
                         16       1.30    1.41             4.46    4.74
                         32       2.16    1.92             7.04    5.28
                         64       3.08    2.23             9.79    6.47
                        256       11.2    6.35             37.4    16.0
    D = 2048, shared      1       0.52    0.73             1.93    1.85
                         16       0.86    0.91             3.34    2.23
                         32       1.23    1.07             4.74    2.63
                         64       2.14    1.46             8.01    3.71
                        256       7.16    3.82             28.3    8.50
    D = 768, 3 levels    32       0.26    0.37             1.04    1.01
                        256       1.00    0.88             3.62    2.30

so it pays from 32 events on, and from three levels on. Medians of tests/benchmarks/butterfly_paths.py (31 samples in
turns, one thread, AMD EPYC with AVX2, torch 2.15), the two transpositions between events and entries included. The
same with at most 5 levels to a run, two products of 32 x 32 in place of three of 16 x 16 and 8 x 8, took 2 to 15 %
longer on this machine, forward and backward.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from layers.butterflies.pairs import ButterflyPlan

MOST_LEVELS = 4  # 16 x 16; with 5 the extra arithmetic costs more than the passes over the data that it saves
LEAST_LEVELS = 3  # two levels are as fast one by one
LEAST_BATCH = 32

Factors = Sequence[tuple[int, Tensor]]
"""(level, matrices (2, 2, blocks, half or 1)) of the factors of one part, the first applied first."""


def pays(plan: ButterflyPlan, batch: int) -> bool:
    """Return whether this module is faster than `layers.butterflies.pairs` on `batch` events (see the table above)."""
    return batch >= LEAST_BATCH and any(len(part.levels) >= LEAST_LEVELS for part in plan.parts)


def apply(weight: Tensor, x: Tensor, plan: ButterflyPlan) -> Tensor:
    """Apply every factor, in order, as `pairs.apply` does: weight (2, 2, P), x (D, N) -> (D, N)."""
    return _apply_chains(_chains(weight, plan), x, plan)


def apply_inverse(inverse_weight: Tensor, y: Tensor, plan: ButterflyPlan) -> Tensor:
    """Undo `apply`: the factors of `pairs.invert_weight`'s result, last one first. y (D, N) -> (D, N)."""
    return _apply_chains([chain[::-1] for chain in _chains(inverse_weight, plan)], y, plan)


def runs(levels: Sequence[int], most: int = MOST_LEVELS) -> list[slice]:
    """Cut a sequence of levels into runs of at most `most` different ones, few and about equally long."""
    cuts = []
    start = 0
    while start < len(levels):
        left = len(levels) - start
        stop = start + -(-left // -(-left // most))
        repeated = (place for place in range(start, stop) if levels[place] in levels[start:place])
        cuts.append(slice(start, next(repeated, stop)))
        start = cuts[-1].stop
    return cuts


def run_matrices(run: Factors, depth: int, shared: bool) -> Tensor:
    """Return the product of factors of different levels as matrices over the bits that they change: (K, 2^g, 2^g).

    Rows and columns count these bits, the lowest level first. k counts what `_outside` lists, in that order.
    """
    levels = [level for level, _ in run]
    before, after = _outside(levels, depth)
    terms = []
    for place, (level, matrices) in enumerate(run):
        finer = [1 if shared else 2] * (depth - level)
        bits = matrices.reshape(2, 2, *[2] * (level - 1), *finer, -1)
        axis = {bit: bit + (bit < level) for bit in range(1, depth + 2)}  # the level's own bit: axes 0, to, and 1, from
        changed = [*(axis[bit] for bit in levels[:place]), 0, 1, *(axis[bit] for bit in levels[place + 1 :])]
        bits = bits.permute(*changed, *(axis[bit] for bit in after), *(axis[bit] for bit in before))
        bits = bits.expand(*[-1] * (len(changed) + len(after)), *[2] * len(before))
        # Axes of every term: the outputs in the order of the run, the inputs likewise, k.
        absent = [1] * (len(run) - 1)
        terms.append(bits.reshape(*bits.shape[: place + 1], *absent, *bits.shape[place + 1 : len(changed)], -1))
    order = sorted(range(len(run)), key=levels.__getitem__)
    product = _product(terms).permute(*order, *(len(run) + place for place in order), -1)
    size = 2 ** len(run)
    # k last while multiplying, for long inner loops; k first in the result, as a batched product wants it.
    return product.reshape(size * size, -1).T.contiguous().unflatten(1, (size, size))


def _outside(levels: Sequence[int], depth: int) -> tuple[list[int], list[int]]:
    """Return the bits that a run keeps: those before its deepest level, and later ones, the rest as bit depth + 1."""
    deepest = max(levels)
    return [bit for bit in range(1, deepest) if bit not in levels], list(range(deepest + 1, depth + 2))


def _product(terms: Sequence[Tensor]) -> Tensor:
    """Multiply the terms as a tree, so that only the last product has its full size."""
    if len(terms) == 1:
        return terms[0]
    middle = len(terms) // 2
    return _product(terms[:middle]) * _product(terms[middle:])


def _chains(weight: Tensor, plan: ButterflyPlan) -> list[Factors]:
    """Cut the weight into factors, one list per part, in the order of application."""
    pieces = zip(weight.split(plan.lengths, -1), plan.factors, strict=True) if plan.factors else iter(())
    factors = iter([piece.unflatten(-1, (blocks, -1)) for piece, (blocks, _) in pieces])
    return [[(level, next(factors)) for level in part.levels] for part in plan.parts]


def _apply_chains(chains: Sequence[Factors], x: Tensor, plan: ButterflyPlan) -> Tensor:
    if len(chains) == 1:
        return _apply_chain(chains[0], x, plan.shared)
    parts = zip(chains, x.split(plan.sizes), strict=True)
    return torch.cat([_apply_chain(chain, part, plan.shared) for chain, part in parts])


def _apply_chain(chain: Factors, x: Tensor, shared: bool) -> Tensor:
    """Apply the factors of one part: x (size, N) -> (size, N)."""
    if not chain:
        return x
    size, batch = x.shape
    levels = [level for level, _ in chain]
    depth = max(levels)
    dtype = torch.promote_types(x.dtype, chain[0][1].dtype)
    grid = x.to(dtype).reshape(*[2] * depth, size >> depth, batch)  # an axis for each bit, the rest, the batch
    for cut in runs(levels):
        matrices = run_matrices(chain[cut], depth, shared).to(dtype)
        before, after = _outside(levels[cut], depth)
        changed = sorted(levels[cut])
        # Shared, the bits after are columns like the batch. In these orders the products of ascending levels need no
        # copy between them: each takes the last one's output as a view.
        order = [*before, *changed, *after] if shared else [*after, *before, *changed]
        axes = [*(bit - 1 for bit in order), depth + 1]
        columns = grid.permute(axes)
        count, width, _ = matrices.shape
        product = torch.bmm(matrices, columns.reshape(count, width, size * batch // (count * width)))
        grid = product.reshape(columns.shape).permute([axes.index(axis) for axis in range(depth + 2)])
    return grid.reshape(size, batch)
