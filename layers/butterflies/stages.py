"""Butterflies on any dimension: one stage for every prime factor of D, not for the factors of two alone.

Write D = p_1 p_2 ... p_m, twos first, then the odd primes, each in ascending order (784 = 2 2 2 2 7 7). Stage i has
b = p_1 ... p_{i-1} blocks of D / b entries; in each, the p_i entries at distances of s = D / (b p_i) form a group, and
every group is mapped by one p_i x p_i matrix. A stage with p_i = 2 is the butterfly factor of level i. An entry's
place is a number with the digits of a mixed radix, and stage i changes digit i alone; so all m stages in any order let
every entry reach every other, in one pass, and p_1 ... p_m ... p_1 hold every permutation
(`layers.butterflies.permutations`).

Block-wise, the same is done to the D / C blocks of C consecutive entries in place of D entries, with one p C x p C
matrix for every group of p blocks: a block-wise butterfly factor is a stage of radix 2.

A stage costs p D multiply-adds per event and has p D free parameters, where log2(p) stages of radix 2 would have
2 log2(p) D. A prime above `LARGEST_PRIME` is therefore no radix: `smooth_parts` cuts D into parts that have none, and
the entries of two parts do not mix. Up to 31 a stage costs about twice what one of radix 3 does and has 31 D
parameters, half as many again as all ten stages of radix 2 at D = 3072; above, both grow in proportion to p:

    p                                 2     3     7    13    17    23    31    37    61   127
    forward, ns per entry           1.5   7.6   6.2   7.9   6.7   7.8   8.5    11    15    35
    forward + backward, ns          4.0    13    19    16    16    24    30    32    46    88

Medians per entry of an event (one stage on about 3,000 entries, batch 64, float32, one thread of an AMD EPYC, torch
2.15); they move by a factor of up to 1.5 between runs. Radix 2 is compiled code, all others batched matrix products
between two transpositions: most of the cost of an odd stage is moving data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import cast

import torch
from torch import Tensor, nn

from layers.base import InvertibleLinear
from layers.butterflies.pairs import ButterflyPlan, transposed
from layers.linalg.plu import PLUMatrices

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


def stages_of_plan(plan: ButterflyPlan, width: int = 1) -> list[list[Stage]]:
    """Return the butterfly factors of every part of a plan as stages of radix 2."""
    return [[Stage(2, 2 ** (i - 1), part.size >> i, width) for i in part.levels] for part in plan.parts]


def apply_stages(chain: Sequence[tuple[Stage, Tensor]], x: Tensor) -> Tensor:
    """Apply stages of one width, the first one first: x (D, N) -> (D, N).

    Args:
        chain: stages, each with its matrices: (blocks * stride, radix * width, radix * width), the groups of a block
            side by side; shared, (blocks, radix * width, radix * width). They may be complex.
        x: batch of D = blocks * radix * stride * width entries.
    """
    if not chain:
        return x
    (size, batch), width = x.shape, chain[0][0].width
    # With the digits of a unit's number as axes, the output of a stage is a view in the right order, and one copy takes
    # it to the groups of the next stage.
    places = {place for stage, _ in chain for place in (stage.blocks, stage.blocks * stage.radix)}
    bounds = sorted({1, size // width, *places})
    grid = x.to(torch.promote_types(x.dtype, chain[0][1].dtype))
    grid = grid.reshape(*[after // before for before, after in pairwise(bounds)], width, batch)
    for stage, matrices in chain:
        digit = bounds.index(stage.blocks)
        # Shared, the stride is columns like the batch. In a group, the entries of a unit follow each other.
        moved = (-2, digit + 1) if len(matrices) == stage.blocks else (digit, -3)
        groups = grid.movedim(*moved)
        columns = size * batch // (len(matrices) * matrices.shape[-1])
        y = torch.bmm(matrices, groups.reshape(len(matrices), matrices.shape[-1], columns))
        grid = y.view(groups.shape).movedim(*reversed(moved))
    return grid.reshape(size, batch)


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


def product_matrix(chains: Iterable[Iterable[tuple[Stage, Tensor]]], sizes: Sequence[int], like: Tensor) -> Tensor:
    """Return the product of the stages of every part, of these sizes, as an explicit (D, D) matrix like `like`."""
    products = []
    for size, chain in zip(sizes, chains, strict=True):
        product = torch.eye(size, dtype=like.dtype, device=like.device)
        for stage, matrices in chain:
            product = torch.sparse.mm(stage_matrix(matrices, stage), product)
        products.append(product)
    return torch.block_diag(*products)


def in_memory_order(matrix: Tensor, layout: Sequence[int]) -> Tensor:
    """Return a matrix (D, D) on entries in the order of a layout (see `PLUStages`) as one on events in memory order."""
    if not layout:
        return matrix
    place = torch.arange(len(matrix), device=matrix.device).view(*layout).permute(2, 1, 0).flatten().argsort()
    return matrix[place][:, place]


class PLUStages(InvertibleLinear):
    """Stages of any radix on every part of an event's D entries, their matrices by PLU factors.

    Determinant: log|det| = sum of log_s over all matrices, times the stride of their stage where its groups share them.
    Inverse: the stages in reverse order, their matrices by one batched solve.

    Args:
        shape: event shape.
        sizes: of the parts, in entries; they sum to D.
        parts: the stages of every part, the first applied first; may be none.
        shared: one matrix for all groups of a block.
        initial: the matrices of every stage, as `apply_stages` takes them, part after part.
        layout: sizes (J, S, n) of an event in memory, where its entries are taken in the order (n, S, J); empty for
            those in the order of memory.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        sizes: Sequence[int],
        parts: Sequence[Sequence[Stage]],
        shared: bool,
        initial: Sequence[Tensor],
        layout: Sequence[int] = (),
    ) -> None:
        super().__init__(shape)
        self.sizes, self.parts, self.shared, self.layout = sizes, parts, shared, layout
        # Successive stages with matrices of one size are one batch.
        batches = [list(run) for _, run in groupby(initial, lambda matrices: matrices.shape[-1])]
        self.counts = [[len(matrices) for matrices in batch] for batch in batches]
        self.matrices = nn.ModuleList(PLUMatrices(torch.cat(batch)) for batch in batches)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply every stage; no determinant is computed for the log-det."""
        y = self._run(x, self.by_stage(PLUMatrices.matrices))
        return y, self.log_det()

    def log_det(self) -> Tensor:
        """Add up log_s over all matrices, shared ones as often as they are applied."""
        batches = self._batches()
        terms = [batch.log_s.sum() for batch in batches]
        if self.shared:
            log_dets = zip(self._stages(), self.by_stage(PLUMatrices.log_abs_dets), strict=True)
            terms = [stage.stride * log_det.sum() for stage, log_det in log_dets]
        return sum(terms, batches[0].log_s.new_zeros(()) if batches else torch.zeros(()))

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Invert all matrices once; the callable undoes every stage, the last one first."""
        inverses = self.by_stage(PLUMatrices.inverse_matrices)
        return lambda y: self._run(y, inverses, backwards=True)

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return the product of the stages' explicit sparse matrices."""
        chains = self._chains(self.by_stage(PLUMatrices.matrices))
        product = product_matrix(chains, self.sizes, next(self.parameters()))
        return in_memory_order(product, self.layout)

    @torch.no_grad()
    def factors(self) -> list[tuple[str, Tensor]]:
        """Return every stage, part by part, the first applied first, each of its part's size."""
        chain = zip(self._stages(), self.by_stage(PLUMatrices.matrices), strict=True)
        return [(stage.name, stage_matrix(matrices, stage).to_dense()) for stage, matrices in chain]

    def set_matrices(self, stages: Sequence[Tensor]) -> None:
        """Set the matrices of every stage, given as `initial`."""
        left = iter(stages)
        for held, counts in zip(self._batches(), self.counts, strict=True):
            held.set_matrices(torch.cat([next(left) for _ in counts]))

    def _stages(self) -> list[Stage]:
        return [stage for part in self.parts for stage in part]

    def _batches(self) -> list[PLUMatrices]:
        return cast("list[PLUMatrices]", list(self.matrices))

    def by_stage(self, of: Callable[[PLUMatrices], Tensor]) -> list[Tensor]:
        """Return a tensor of each batch of matrices, cut into those of its stages."""
        batches = zip(self._batches(), self.counts, strict=True)
        return [piece for batch, counts in batches for piece in of(batch).split(counts)]

    def _chains(self, weights: Sequence[Tensor]) -> Iterator[list[tuple[Stage, Tensor]]]:
        """Pair the stages of every part with their matrices."""
        left = iter(weights)
        return ([(stage, next(left)) for stage in part] for part in self.parts)

    def _run(self, x: Tensor, weights: Sequence[Tensor], *, backwards: bool = False) -> Tensor:
        entries = self._reordered(transposed(x.flatten(1)), self.layout)
        parts = zip(self._chains(weights), entries.split(list(self.sizes)), strict=True)
        pieces = [apply_stages(chain[::-1] if backwards else chain, piece) for chain, piece in parts]
        entries = torch.cat(pieces) if len(pieces) > 1 else pieces[0]
        return transposed(self._reordered(entries, self.layout[::-1])).view(x.shape)

    @staticmethod
    def _reordered(entries: Tensor, layout: Sequence[int]) -> Tensor:
        """Reverse the order of the axes that a layout gives to D entries: (D, N) -> (D, N)."""
        if not layout:
            return entries
        # With the batch last, rows of it move in one piece.
        return entries.view(*layout, entries.shape[1]).permute(2, 1, 0, 3).reshape(entries.shape)
