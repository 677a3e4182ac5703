"""Block-wise butterfly factors as pure functions of their weights: apply, invert, log-det, explicit matrix.

D entries are D / C blocks of C consecutive ones. A factor of level i pairs whole blocks as `butterfly_factors` pairs
entries, and maps each pair by one 2C x 2C matrix; with C = 1 it is that butterfly factor. The sizes of a plan count
blocks.

All factors of a product live in one weight of shape (P, 2C, 2C): one matrix per pair, the pairs of a factor block
after block of the butterfly, factor after factor in the order of application, part after part. Shared, a factor takes
one matrix per block of the butterfly. Weights may be real or complex.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from layers.butterflies import pairs as butterfly_factors
from layers.butterflies.pairs import ButterflyPlan

Chain = Sequence[tuple[int, Tensor]]
"""(level, matrices) of the factors of one part, the first applied first."""


def log_abs_det(weight: Tensor, multiplicity: Tensor | None = None) -> Tensor:
    """Return log|det| of the whole product, shape (), real.

    Args:
        weight: (P, 2C, 2C).
        multiplicity: (P,), how many pairs use each matrix (`butterfly_factors.multiplicities`); None for one each.
    """
    terms = torch.linalg.slogdet(weight).logabsdet
    return (terms if multiplicity is None else terms * multiplicity).sum()


def apply(weight: Tensor, x: Tensor, plan: ButterflyPlan) -> Tensor:
    """Apply every factor, in order: weight (P, 2C, 2C), x (D, N) -> (D, N)."""
    return _apply_chains(_chains(weight, plan), x, plan, weight.shape[-1] // 2)


def apply_inverse(inverse_weight: Tensor, y: Tensor, plan: ButterflyPlan) -> Tensor:
    """Undo `apply`: the factors of the inverse matrices, last one first. y (D, N) -> (D, N)."""
    chains = [chain[::-1] for chain in _chains(inverse_weight, plan)]
    return _apply_chains(chains, y, plan, inverse_weight.shape[-1] // 2)


def apply_chain(chain: Chain, x: Tensor) -> Tensor:
    """Apply the factors of one part: matrices (P_i, 2C, 2C) at each level, x (D, N) -> (D, N)."""
    if not chain:
        return x
    depth = max(level for level, _ in chain)
    width, dtype = chain[0][1].shape[-1], chain[0][1].dtype
    size, batch = x.shape
    pairs = size // width
    # Level i pairs along bit i of a block's number. Bits as axes, a factor's output is a view in the right order,
    # and one copy takes it to the pairs of the next factor.
    grid = x.to(torch.promote_types(x.dtype, dtype)).reshape(*[2] * depth, 2 * pairs >> depth, width // 2, batch)
    for level, matrices in chain:
        bit_inside = grid.movedim(level - 1, -3)
        columns = bit_inside.reshape(len(matrices), pairs // len(matrices), width, batch)
        grid = (matrices.unsqueeze(1) @ columns).reshape(bit_inside.shape).movedim(-3, level - 1)
    return grid.reshape(size, batch)


def factor_matrix(matrices: Tensor, level: int, blocks: int) -> Tensor:
    """Return one factor as an explicit sparse (D, D) matrix, from the paper's definition: for tests and oracles.

    Rows C l + a and columns C l + b, for l = 0, 1, ..., are a butterfly factor, for any a and b below C.

    Args:
        matrices: (pairs, 2C, 2C), or shared, one for each of the 2^{level-1} blocks of the butterfly.
        level: of the factor.
        blocks: D / C.
    """
    size = matrices.shape[-1] // 2
    places, values = [], []
    for a, b in product(range(size), repeat=2):
        scalars = matrices[:, a::size, b::size].permute(1, 2, 0).unflatten(2, (2 ** (level - 1), -1))
        factor = butterfly_factors.factor_matrix(scalars, blocks).coalesce()
        places.append(size * factor.indices() + torch.tensor([[a], [b]], device=matrices.device))
        values.append(factor.values())
    shape = (size * blocks, size * blocks)
    return torch.sparse_coo_tensor(torch.cat(places, 1), torch.cat(values), shape, check_invariants=True)


def dense(weight: Tensor, plan: ButterflyPlan) -> Tensor:
    """Return the whole product as an explicit (D, D) matrix."""
    products = []
    for blocks, chain in zip(plan.sizes, _chains(weight, plan), strict=True):
        matrix = torch.eye(blocks * weight.shape[-1] // 2, dtype=weight.dtype, device=weight.device)
        for level, matrices in chain:
            matrix = torch.sparse.mm(factor_matrix(matrices, level, blocks), matrix)
        products.append(matrix)
    return torch.block_diag(*products)


def _chains(weight: Tensor, plan: ButterflyPlan) -> list[list[tuple[int, Tensor]]]:
    """Cut the weight into factors, one list per part, in the order of application."""
    pieces = iter(weight.split(plan.lengths)) if plan.lengths else iter(())  # no lengths give one empty piece
    return [[(level, next(pieces)) for level in part.levels] for part in plan.parts]


def _apply_chains(chains: Sequence[Chain], x: Tensor, plan: ButterflyPlan, size: int) -> Tensor:
    parts = x.split([size * blocks for blocks in plan.sizes])
    pieces = [apply_chain(chain, part) for chain, part in zip(chains, parts, strict=True)]
    return torch.cat(pieces) if len(pieces) > 1 else pieces[0]
