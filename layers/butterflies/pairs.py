"""Butterfly factors as pure functions of their weights: which entries pair, apply, invert, log-det.

A factor of level i on D entries has 2^{i-1} blocks of size l = D / 2^{i-1}. Entry k of a block's first half pairs
with entry k of its second half, and each pair is mapped by one 2x2 matrix. D need only be divisible by 2^i.

All factors of a product live in one weight of shape (2, 2, P): weight[o, i] holds the entries of the 2x2 matrices
that take input half i to output half o, factor after factor in the order of application, part after part.
Unshared, a factor takes l / 2 matrices per block; shared, one. Weights may be real or complex.

Batches are (D, N), entries first: the batch is then contiguous for every stride, and one 2x2 entry multiplies a
whole row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

LEAST_SIDE = 16  # of a matrix whose gradient is worth the call of a Function, some 0.1 ms


@dataclass(frozen=True)
class ButterflyPart:
    """A run of `size` entries (blocks of entries, if block-wise) with factors of `levels`, first applied first."""

    size: int
    levels: tuple[int, ...]


@dataclass(frozen=True)
class ButterflyPlan:
    """The parts of a block-diagonal butterfly; `shared` if the pairs of a block have one matrix."""

    parts: tuple[ButterflyPart, ...]
    shared: bool = False

    def __post_init__(self) -> None:
        """Compute the lists now: torch.compile does not trace the lock under which Python 3.11 computes them."""
        _ = self.sizes, self.factors, self.lengths, self.flat

    @cached_property
    def sizes(self) -> list[int]:
        """Return the sizes of the parts, which sum to D (to D / C, if block-wise)."""
        return [part.size for part in self.parts]

    @cached_property
    def factors(self) -> list[tuple[int, int]]:
        """Return (blocks, half size of a block) of every factor, in the order of the weight."""
        return [(2 ** (i - 1), part.size // 2**i) for part in self.parts for i in part.levels]

    @cached_property
    def lengths(self) -> list[int]:
        """Return the number of matrices of every factor, in the order of the weight; their sum is P."""
        return [blocks if self.shared else blocks * half for blocks, half in self.factors]

    @cached_property
    def flat(self) -> list[int]:
        """Return the plan for compiled operators: for each part its size, the number of its levels, its levels."""
        return [number for part in self.parts for number in (part.size, len(part.levels), *part.levels)]


def most_levels(size: int) -> int:
    """Return the number of times that 2 divides `size`: the deepest level that a butterfly on it can have."""
    return (size & -size).bit_length() - 1


def initial_weight(count: int, initialisation: str) -> Tensor:
    """Return `count` 2x2 matrices as a weight (2, 2, count): identities, or for "rotation" random rotations."""
    if initialisation == "rotation":
        angle = 2 * math.pi * torch.rand(count)
        cos, sin = angle.cos(), angle.sin()
        return torch.stack((torch.stack((cos, -sin)), torch.stack((sin, cos))))
    return torch.eye(2)[:, :, None].repeat(1, 1, count)


def determinants(weight: Tensor) -> Tensor:
    """Return the determinants ad - bc of all 2x2 matrices: (2, 2, P) -> (P,)."""
    (a, b), (c, d) = weight
    return torch.addcmul(a * d, b, c, value=-1)


def log_abs_det(weight: Tensor, multiplicity: Tensor | None = None) -> Tensor:
    """Return log|det| of the product of a weight (2, 2, P), (), real; see `multiplicities` for (P,), None is all 1."""
    terms = determinants(weight).abs().log()
    return (terms if multiplicity is None else terms * multiplicity).sum()


def multiplicities(plan: ButterflyPlan) -> Tensor:
    """Return how many pairs use each matrix of the weight, shape (P,)."""
    pairs = torch.tensor([half if plan.shared else 1 for _, half in plan.factors], dtype=torch.long)
    return pairs.repeat_interleave(torch.tensor(plan.lengths, dtype=torch.long)).to(torch.get_default_dtype())


def invert_weight(weight: Tensor) -> Tensor:
    """Return the inverses of all 2x2 matrices, (2, 2, P) -> (2, 2, P); infinite where one is singular."""
    (a, b), (c, d) = weight
    adjugate = torch.stack((torch.stack((d, -b)), torch.stack((-c, a))))
    return adjugate / determinants(weight)


def apply(weight: Tensor, x: Tensor, plan: ButterflyPlan) -> Tensor:
    """Apply every factor, in order: weight (2, 2, P), x (D, N) -> (D, N)."""
    return _apply_chains(_chains(weight, plan), x, plan)


def apply_inverse(inverse_weight: Tensor, y: Tensor, plan: ButterflyPlan) -> Tensor:
    """Undo `apply`: the factors of `invert_weight`'s result, last one first. y (D, N) -> (D, N)."""
    return _apply_chains([chain[::-1] for chain in _chains(inverse_weight, plan)], y, plan)


def apply_factor(matrices: Tensor, x: Tensor) -> Tensor:
    """Apply one factor: matrices (2, 2, blocks, half), or (2, 2, blocks, 1) shared; x (D, N) -> (D, N)."""
    size, batch = x.shape
    blocks = matrices.shape[2]
    (a, b), (c, d) = matrices.unsqueeze(-1)
    first, second = x.reshape(blocks, 2, size // (2 * blocks), batch).unbind(1)
    y = torch.stack((torch.addcmul(a * first, b, second), torch.addcmul(c * first, d, second)), 1)
    return y.reshape(size, batch)


def _chains(weight: Tensor, plan: ButterflyPlan) -> list[list[Tensor]]:
    """Cut the weight into factors (2, 2, blocks, half or 1), one list per part, in the order of application."""
    if not plan.factors:  # split() returns one empty piece for no lengths
        return [[] for _ in plan.parts]
    pieces = zip(weight.split(plan.lengths, -1), plan.factors, strict=True)
    factors = iter([piece.unflatten(-1, (blocks, -1)) for piece, (blocks, _) in pieces])
    return [[next(factors) for _ in part.levels] for part in plan.parts]


def _apply_chains(chains: Iterable[Iterable[Tensor]], x: Tensor, plan: ButterflyPlan) -> Tensor:
    pieces = []
    for chain, piece in zip(chains, x.split(plan.sizes), strict=True):
        for matrices in chain:
            piece = apply_factor(matrices, piece)
        pieces.append(piece)
    return torch.cat(pieces) if len(pieces) > 1 else pieces[0]


def transposed(matrix: Tensor) -> Tensor:
    """Return the transpose, contiguous; so is its gradient, unless the matrix is narrow.

    Autograd would hand the gradient on as a transposed view, and code that needs it contiguous then copies it entry by
    entry; torch copies a whole matrix by blocks, 3 to 4 times faster.
    """
    recorded = torch.is_grad_enabled() and matrix.requires_grad and min(matrix.shape) >= LEAST_SIDE
    if not recorded or torch.compiler.is_compiling():  # which traces no Function with a `jvp`
        return matrix.T.contiguous()
    result: Tensor = _Transposed.apply(matrix)
    return result


class _Transposed(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor) -> Tensor:
        # A clone even where the transpose is contiguous already: the result of a Function must be a tensor of its own.
        return matrix.T.clone(memory_format=torch.contiguous_format)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing to keep."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return transposed(gradient)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return transposed(tangent)
