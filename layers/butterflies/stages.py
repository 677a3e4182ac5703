"""Butterflies on any dimension: one stage for every prime factor of D, not for the factors of two alone.

Write D = p_1 p_2 ... p_m, twos first, then the odd primes, each in ascending order (784 = 2 2 2 2 7 7). Stage i has
b = p_1 ... p_{i-1} blocks of D / b entries; in each, the p_i entries at distances of s = D / (b p_i) form a group, and
every group is mapped by one p_i x p_i matrix. A stage with p_i = 2 is the butterfly factor of level i. An entry's
place is a number with the digits of a mixed radix, and stage i changes digit i alone; so all m stages in any order let
every entry reach every other, in one pass, and p_1 ... p_m ... p_1 hold every permutation
(`layers.butterflies.routing`).

Block-wise, the same is done to the D / C blocks of C consecutive entries in place of D entries, with one p C x p C
matrix for every group of p blocks.

A stage costs p D multiply-adds per event and has p D free parameters, where log2(p) stages of radix 2 would have
2 log2(p) D. A prime above `LARGEST_PRIME` is therefore no radix: `smooth_parts` cuts D into parts that have none, and
the entries of two parts do not mix. Up to 31 a stage costs about twice what one of radix 3 does and has 31 D
parameters, half as many again as all ten stages of radix 2 at D = 3072; above, both grow in proportion to p:

    p                                 2     3     7    13    17    23    31    37    61   127
    forward, ns per entry           1.5   7.6   6.2   7.9   6.7   7.8   8.5    11    15    35
    forward + backward, ns          4.0    13    19    16    16    24    30    32    46    88

Medians of tests/benchmarks/radix_stages.py (one stage on about 3,000 entries, batch 64, float32, one thread of an AMD
EPYC, torch 2.15), per entry of an event; they move by a factor of up to 1.5 between runs. Radix 2 is compiled code, all
others batched matrix products between two transpositions: most of the cost of an odd stage is moving data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import cast

import torch
from torch import Tensor, nn

from layers.butterflies import fused
from layers.butterflies import pairs as factors
from layers.butterflies.pairs import ButterflyPart, ButterflyPlan
from layers.kernels import load as kernels
from layers.linalg.layout import transposed
from layers.linalg.plu import PLUMatrices, random_rotations

LARGEST_PRIME = 31


@dataclass(frozen=True)
class Stage:
    """One stage on blocks * radix * stride units, of which those `stride` apart in a block form a group.

    A unit is `width` consecutive entries.
    """

    radix: int
    blocks: int
    stride: int
    width: int = 1

    @property
    def name(self) -> str:
        """Return a description with the stride in entries."""
        return f"radix {self.radix}, stride {self.stride * self.width}"


def prime_factors(number: int) -> list[int]:
    """Return the primes that multiply to `number`, ascending: 784 -> [2, 2, 2, 2, 7, 7]; none for 1."""
    primes, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            primes.append(divisor)
            number //= divisor
        divisor += 1
    return [*primes, number] if number > 1 else primes


def smooth_parts(dim: int, largest: int = LARGEST_PRIME) -> list[int]:
    """Return sizes that sum to `dim`, without prime factors above `largest`: each the largest that still fits.

    [dim] if it has none itself; 794 = 2 * 397 -> [792, 2]. If a cut is necessary, the largest first part lets most
    pairs of entries mix.
    """
    parts = []
    while dim:
        size = next(size for size in range(dim, 0, -1) if max(prime_factors(size), default=1) <= largest)
        parts.append(size)
        dim -= size
    return parts


def stages_of(size: int, width: int = 1) -> list[Stage]:
    """Return the stages of one pass over `size` units of `width` entries, the largest stride first."""
    stages, blocks = [], 1
    for radix in prime_factors(size):
        stages.append(Stage(radix, blocks, size // (blocks * radix), width))
        blocks *= radix
    return stages


def apply_stage(matrices: Tensor, x: Tensor, stage: Stage) -> Tensor:
    """Apply one stage: x (D, N) -> (D, N).

    Args:
        matrices: (blocks * stride, radix * width, radix * width), the groups of a block side by side; shared, (blocks,
            radix * width, radix * width).
    """
    size, batch = x.shape
    shared, side = len(matrices) == stage.blocks, stage.radix * stage.width
    if shared and stage.width == 1:  # the stride is columns like the batch
        return torch.bmm(matrices, x.reshape(stage.blocks, side, stage.stride * batch)).view(size, batch)
    grid = x.reshape(stage.blocks, stage.radix, stage.stride, stage.width, batch)
    groups = grid.permute(0, 1, 3, 2, 4) if shared else grid.transpose(1, 2)
    y = torch.bmm(matrices, groups.reshape(len(matrices), side, -1)).view(groups.shape)
    return (y.permute(0, 1, 3, 2, 4) if shared else y.transpose(1, 2)).reshape(size, batch)


def stage_matrix(matrices: Tensor, stage: Stage) -> Tensor:
    """Return one stage as an explicit sparse (D, D) matrix, entry by entry from the definition: for tests, oracles."""
    radix, blocks, stride, width = stage.radix, stage.blocks, stage.stride, stage.width
    side, size, device = radix * width, radix * blocks * stride * width, matrices.device
    start = torch.arange(blocks, device=device)[:, None] * radix * stride + torch.arange(stride, device=device)
    units = start.flatten()[:, None] + stride * torch.arange(radix, device=device)  # (groups, radix)
    members = (units[:, :, None] * width + torch.arange(width, device=device)).flatten(1)  # (groups, radix * width)
    rows = members[:, :, None].expand(-1, -1, side)
    values = matrices if len(matrices) == len(members) else matrices.repeat_interleave(stride, 0)
    places = torch.stack((rows.flatten(), rows.transpose(1, 2).flatten()))
    return torch.sparse_coo_tensor(places, values.flatten(), (size, size), check_invariants=True)


class RadixTwo(nn.Module):
    """A run of stages of radix 2 on all parts, as butterfly factors with free 2x2 matrices, for flat events (N, D)."""

    multiplicity: Tensor | None

    def __init__(self, plan: ButterflyPlan, initialisation: str) -> None:
        super().__init__()
        self.plan = plan
        self.weight = nn.Parameter(factors.initial_weight(sum(plan.lengths), initialisation))
        uses = factors.multiplicities(plan) if plan.shared else None  # follows from the plan: not saved
        self.register_buffer("multiplicity", uses, persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the stages on x (N, D), and their log|det|."""
        if kernels.serve(x, self.weight):
            return torch.ops.invertbench.butterfly(x, self.weight, self.plan.flat, [], self.plan.shared)
        way = fused if fused.pays(self.plan, len(x)) else factors
        y = transposed(way.apply(self.weight, transposed(x), self.plan))
        return y, factors.log_abs_det(self.weight, self.multiplicity)

    def solver(self) -> Callable[[Tensor], Tensor]:
        """Return the inverse with the current weights, (N, D) -> (N, D)."""
        plan = self.plan
        if kernels.serve(self.weight):  # compiled code inverts the matrices as it reads them
            weight = self.weight.clone()
            return lambda y: torch.ops.invertbench.butterfly_inverse(y, weight, plan.flat, [], plan.shared)
        inverse_weight = factors.invert_weight(self.weight)

        def invert(y: Tensor) -> Tensor:
            way = fused if fused.pays(plan, len(y)) else factors
            return transposed(way.apply_inverse(inverse_weight, transposed(y), plan))

        return invert

    @property
    def count(self) -> int:
        """The number of stages."""
        return len(self.plan.factors)

    def by_part(self) -> list[list[Tensor]]:
        """Return the matrices of every stage of every part, as `apply_stage` takes them."""
        pieces = iter(self.weight.permute(2, 0, 1).split(self.plan.lengths))
        return [[next(pieces) for _ in part.levels] for part in self.plan.parts]

    def set_stages(self, stages: Sequence[Tensor]) -> None:
        """See `MixedRadix.set_stages`."""
        self.weight.copy_(torch.cat(list(stages)).permute(1, 2, 0))

    def dense(self) -> Tensor:
        """Return the product as a (D, D) matrix."""
        return factors.dense(self.weight, self.plan)


class PLUStages(nn.Module):
    """A run of stages of any radix on all parts, their matrices by PLU factors, for flat events (N, D).

    Args:
        sizes: of the parts, in entries.
        parts: the stages of every part, the first applied first; may be none.
        shared: one matrix for all groups of a block.
        initialisation: "identity" or "rotation".
    """

    def __init__(self, sizes: list[int], parts: list[list[Stage]], shared: bool, initialisation: str) -> None:
        super().__init__()
        self.sizes, self.parts, self.shared = sizes, parts, shared
        matrices = []
        for stage in (stage for part in parts for stage in part):
            count, side = stage.blocks * (1 if shared else stage.stride), stage.radix * stage.width
            identities = torch.eye(side).expand(count, -1, -1)
            start = random_rotations(count, side) if initialisation == "rotation" else identities
            matrices.append(PLUMatrices(start))
        self.matrices = nn.ModuleList(matrices)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the stages on x (N, D), and their log|det|: no determinant is computed."""
        log_det = x.new_zeros(())
        for stage, matrices in self._all():
            log_det = log_det + matrices.log_s.sum() * (stage.stride if self.shared else 1)
        return self._run(x, [matrices.matrices() for _, matrices in self._all()], backwards=False), log_det

    def solver(self) -> Callable[[Tensor], Tensor]:
        """Return the inverse with the current weights, (N, D) -> (N, D)."""
        inverses = [matrices.inverse_matrices() for _, matrices in self._all()]
        return lambda y: self._run(y, inverses, backwards=True)

    def dense(self) -> Tensor:
        """Return the product as a (D, D) matrix."""
        products = []
        for size, part, weights in zip(self.sizes, self.parts, self.by_part(), strict=True):
            like = next(self.parameters())
            product = torch.eye(size, dtype=like.dtype, device=like.device)
            for stage, matrices in zip(part, weights, strict=True):
                product = torch.sparse.mm(stage_matrix(matrices, stage), product)
            products.append(product)
        return torch.block_diag(*products)

    @property
    def count(self) -> int:
        """The number of stages."""
        return len(self.matrices)

    def by_part(self) -> list[list[Tensor]]:
        """Return the matrices of every stage of every part, as `apply_stage` takes them."""
        matrices = (matrices.matrices() for _, matrices in self._all())
        return [[next(matrices) for _ in part] for part in self.parts]

    def set_stages(self, stages: Sequence[Tensor]) -> None:
        """See `MixedRadix.set_stages`."""
        for (_, held), given in zip(self._all(), stages, strict=True):
            held.set_matrices(given)

    def _all(self) -> list[tuple[Stage, PLUMatrices]]:
        stages = [stage for part in self.parts for stage in part]
        return list(zip(stages, cast("list[PLUMatrices]", list(self.matrices)), strict=True))

    def _run(self, x: Tensor, weights: Sequence[Tensor], *, backwards: bool) -> Tensor:
        pieces, used = [], 0
        for part, entries in zip(self.parts, transposed(x).split(self.sizes), strict=True):
            chain = list(zip(weights[used : used + len(part)], part, strict=True))
            used += len(part)
            for matrices, stage in reversed(chain) if backwards else chain:
                entries = apply_stage(matrices, entries, stage)
            pieces.append(entries)
        return transposed(torch.cat(pieces) if len(pieces) > 1 else pieces[0])


class MixedRadix(nn.Module):
    """A product of stages of every radix on flat events (N, D).

    Determinant: log|det| = sum of log|ad - bc| over the 2x2 matrices and of log_s over the PLU factors of all others.
    Inverse: the stages in reverse order, 2x2 matrices in closed form, all others by one batched solve.
    Cost: p C D multiply-adds for a stage of radix p, forward and inverse; the log-det D / 2 logarithms for a stage of
        2x2 matrices, a sum for the others.
    Parameters: 2D for a stage of 2x2 matrices; p C D for any other, stored as (2 p C + 1) D.

    Args:
        dim: D, a multiple of C.
        descending: the smallest stride first.
        bi_direction: p_1 ... p_m ... p_1, 2m - 1 stages: the one in the middle twice would be no more than once.
        shared: one matrix for all groups of a block.
        initialisation: "identity" or "rotation".
        width: C, the consecutive entries that are moved as one.

    Attributes:
        sizes: of the parts, in entries: [D] where no prime factor of D / C is above `LARGEST_PRIME`.
        sequences: the stages of every part, the first applied first.
    """

    def __init__(
        self,
        dim: int,
        descending: bool = False,
        bi_direction: bool = False,
        shared: bool = False,
        initialisation: str = "identity",
        width: int = 1,
    ) -> None:
        super().__init__()
        units = smooth_parts(dim // width)
        self.width, self.sizes = width, [width * size for size in units]
        self.sequences = [_sequence(stages_of(size, width), descending, bi_direction) for size in units]
        passes: list[nn.Module] = []
        for two, parts in _runs(self.sequences):
            if two:
                levels = [tuple(stage.blocks.bit_length() for stage in part) for part in parts]
                passes.append(
                    RadixTwo(ButterflyPlan(tuple(map(ButterflyPart, self.sizes, levels)), shared), initialisation)
                )
            else:
                passes.append(PLUStages(self.sizes, parts, shared, initialisation))
        self.passes = nn.ModuleList(passes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return all stages on x (N, D), and log|det| of the product, shape ()."""
        log_det = x.new_zeros(())
        for one in self.passes:
            x, term = one(x)
            log_det = log_det + term
        return x, log_det

    def solver(self) -> Callable[[Tensor], Tensor]:
        """Return the inverse with the current weights, (N, D) -> (N, D)."""
        solvers = [cast("RadixTwo | PLUStages", one).solver() for one in reversed(self.passes)]

        def invert(y: Tensor) -> Tensor:
            for solve in solvers:
                y = solve(y)
            return y

        return invert

    def dense(self) -> Tensor:
        """Return the product as a (D, D) matrix."""
        first, *others = [cast("RadixTwo | PLUStages", one).dense() for one in self.passes]
        for matrix in others:
            first = matrix @ first
        return first

    def factors(self) -> list[tuple[Stage, Tensor]]:
        """Return (stage, sparse matrix) of every stage, part by part, the first applied first, of its part's size."""
        passes = [cast("RadixTwo | PLUStages", one).by_part() for one in self.passes]
        made = []
        for stages, *weights in zip(self.sequences, *passes, strict=True):
            chain = (matrices for run in weights for matrices in run)
            made += [(stage, stage_matrix(matrices, stage)) for stage, matrices in zip(stages, chain, strict=True)]
        return made

    @property
    def remark(self) -> str | None:
        """A remark that D was cut into parts, and why; None if it was not."""
        if len(self.sizes) == 1:
            return None
        dim, parts = sum(self.sizes), ", ".join(map(str, self.sizes))
        primes = prime_factors(dim // self.width)
        product = " * ".join(map(str, primes))
        if self.width > 1:
            product += f" blocks of {self.width}"
        equals = f" = {product}" if product != str(dim) else ""
        return (
            f"D = {dim}{equals} is cut into parts of {parts}: the prime {primes[-1]} is above {LARGEST_PRIME}; "
            "parts do not mix"
        )

    def summary(self) -> str:
        """Return the radices of every part, the first applied first, as a text."""
        return ", ".join(
            f"{size}: {[stage.radix for stage in part]}" for size, part in zip(self.sizes, self.sequences, strict=True)
        )

    @torch.no_grad()
    def set_stages(self, stages: Sequence[Tensor]) -> None:
        """Set the matrices: for each stage in order (blocks * stride, radix, radix). For one part, not shared."""
        start = 0
        for one in (cast("RadixTwo | PLUStages", one) for one in self.passes):
            one.set_stages(stages[start : start + one.count])
            start += one.count


def _sequence(stages: list[Stage], descending: bool, bi_direction: bool) -> list[Stage]:
    if descending:
        stages = stages[::-1]
    return stages + stages[-2::-1] if bi_direction else stages


def _runs(sequences: Sequence[Sequence[Stage]]) -> list[tuple[bool, list[list[Stage]]]]:
    """Cut every part's stages into runs of 2x2 matrices and of larger, and put runs of one kind side by side."""
    left = [
        [(two, list(run)) for two, run in groupby(part, lambda stage: stage.radix * stage.width == 2)]
        for part in sequences
    ]
    runs = []
    while any(left):
        two = any(part and part[0][0] for part in left)
        runs.append((two, [part.pop(0)[1] if part and part[0][0] is two else [] for part in left]))
    return runs
