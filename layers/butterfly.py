"""The butterfly layer: a product of sparse factors that mixes all entries of an event in log2(D) steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from layers.base import InvertibleLinear, UnsupportedShape, check_choice
from layers.butterflies import pairs as factors
from layers.butterflies.pairs import transposed
from layers.butterflies.plan import make_plan
from layers.butterflies.stages import (
    LARGEST_PRIME,
    PLUStages,
    Stage,
    in_memory_order,
    prime_factors,
    product_matrix,
    smooth_parts,
    stage_matrix,
    stages_of,
    stages_of_plan,
)
from layers.chain import Chain
from layers.kernels import load as kernels
from layers.linalg.plu import random_rotations


class Butterfly(InvertibleLinear, name="butterfly"):
    r"""Product of butterfly factors over all D entries of an event; no bias.

    A factor of level i has 2^{i-1} blocks of size l = D / 2^{i-1}; entry k of a block's first half pairs with
    entry k of its second half through one 2x2 matrix [[a, b], [c, d]]. D need only be divisible by 2^i.

    Block-wise, the D entries are D / C blocks of C consecutive ones (`block_size`): the same factors pair blocks in
    place of entries, each pair through one 2C x 2C matrix, given by its PLU factors (`layers.linalg.plu`). The factors
    of the four C x C blocks alone would not give its determinant.

    With neither `levels` nor `partition` it is a butterfly of mixed radix (`layers.butterflies.stages`): after all
    levels of two, one stage for every odd prime p of D / C, with a pC x pC matrix, in PLU form, for each group of p
    blocks a stride apart. So one pass lets every entry reach every other, whatever D is. On a power of two there is no
    such stage. A prime above 31 is no radix: D is then cut into parts that do not mix, as `remark` says.

    Determinant:
        log|det| = sum over all 2x2 matrices of log|ad - bc|, times l / 2 where the pairs of a block share one;
        block-wise, and for odd primes, the sum of log_s in place of log|ad - bc|.
    Inverse:
        the factors in reverse order, each 2x2 matrix inverted in closed form; block-wise, and for odd primes, each
        matrix by one batched solve with its L and U.
    Family: butterflies
    Cost:
        forward: 2 C D multiply-adds per factor, p C D for a stage of an odd prime p
        inverse: the same, after O(p^2 C^2 D) for the matrices of an odd prime p, O(C^2 D) block-wise, once per call
        log-det: 3 operations for each 2x2 matrix; block-wise, and for odd primes, an addition for each entry of a
        diagonal
    Shapes: every (C, L) and (C, H, W); requested levels must be possible for D
    Code: which one serves the 2x2 matrices (measured: docs/performance/throughput.md)
        CPU, float32 or float64, compiled kernels    csrc: all factors, and the log-det, in one pass
            up to 3 events                           one by one, with the unpacked weight
            more, whole vectors pair in memory       entries as lanes, the weight packed once per call
            else (small or odd strides)              events as lanes
        CUDA, the same and events in bfloat16        csrc: one launch or a few (docs/performance/cuda.md)
        otherwise                                    plain PyTorch, level by level; block-wise and odd primes always
    Parameters:
        2D per factor; shared, 4 * 2^{i-1} for one of level i, so 4 (2^M - 1) for levels 1..M. Block-wise
        8C^2 + 2C for each pair, 4C^2 of which reach the map, so (4C + 1) D per factor, 2 C D of them free.
        (2pC + 1) D for an odd prime p, p C D of them free.
    Singular cases:
        ad = bc anywhere: log|det| = -inf, and the inverse is not finite. Block-wise there are none in exact
        arithmetic.

    Args:
        shape: (channels, length) or (channels, height, width), every size; the levels must be possible for D.
        levels: which factors there are.
            None: a stage for every prime of D / C; with a partition, all levels of two that the size allows.
            An int M: levels 1..M (with `partition`, in every part).
            A list without `partition`: the explicit sequence of levels, the first applied first; a level may
            return. A list of ints with `partition`: M for each part. A list of lists with `partition`: the
            explicit sequence for each part.
        order: of levels given as counts. "ascending": level 1, the largest stride, is applied first, as in the
            released configurations; "descending": level M first, as the paper writes the product.
        bi_direction: there and back, 1..M then M..1 (from M..1 to 1..M if descending): 2M factors. With a mixed radix
            of m stages 2m - 1, as the one in the middle twice is no more than once: they hold every permutation.
        shared: one matrix for all pairs of a block.
        initialisation: "identity", or "rotation": a random rotation for each matrix, uniform in 2 dimensions
            (an angle on [0, 2 pi)) or in 2C.
        partition: sizes that sum to D; each run of entries has a butterfly of its own, so that a D with few factors
            of two is served in larger powers of two ([512, 256, 16] for 784). Entries of two parts do not mix.
        flatten: how an event becomes D entries. "channels_first": (c, h, w) or (c, t). "channels_last": (h, w, c)
            or (t, c), which keeps the channels of a position side by side. The released code takes (c, h, w) for
            images and (t, c) for sequences. "pixels": (h, w, s, j) with channel c = j S + s and S channels for each
            j < block_size. A squeezed image has the colour j of pixel s of each square there, so that with block size
            3 a block is one RGB pixel, as in the paper, before the squeeze (where it is "channels_last") and after. A
            split keeps half of the channels, not of the pixels: in later scales of a Glow a block means less.
        block_size: C, the entries that a factor pairs as one; it divides D and every part. Levels are bound by D / C.
        full_depth_at: the D for which `levels` and `partition` are meant. On D = full_depth_at / 2^s every count
            falls by s, not below 0, and every part is divided by 2^s: one level less per scale of a Glow. Not
            with explicit sequences.
        capped: where fewer levels than requested are possible, use those instead of refusing. Not with
            explicit sequences.

    Raises:
        UnsupportedShape: D, or a part, does not allow a level or the block size; the block size does not divide the
            channels with "pixels"; or D is not full_depth_at / 2^s.

    Source: ButterflyFlow (Meng et al., ICML 2022)
    """

    weight: nn.Parameter  # without a product: the free 2x2 matrices
    multiplicity: Tensor | None

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        levels: int | list[int] | list[list[int]] | None = None,
        order: Literal["ascending", "descending"] = "ascending",
        bi_direction: bool = False,
        shared: bool = False,
        initialisation: Literal["identity", "rotation"] = "identity",
        partition: list[int] | None = None,
        flatten: Literal["channels_first", "channels_last", "pixels"] = "channels_first",
        block_size: int = 1,
        full_depth_at: int | None = None,
        capped: bool = False,
    ) -> None:
        super().__init__(shape)
        check_choice("butterfly", "initialisation", initialisation, ("identity", "rotation"))
        check_choice("butterfly", "flatten", flatten, ("channels_first", "channels_last", "pixels"))
        self.plan = make_plan(
            self.dim,
            levels=levels,
            order=order,
            bi_direction=bi_direction,
            shared=shared,
            partition=partition,
            block_size=block_size,
            full_depth_at=full_depth_at,
            capped=capped,
        )
        if flatten == "pixels" and self.channels % block_size:
            raise UnsupportedShape(
                f"butterfly: {self.channels} channels are not divisible by block_size = {block_size}, which "
                "flatten = 'pixels' needs; use flatten: channels_last, or a block size that divides the channels"
            )
        self.block_size = block_size
        # The order of the entries, as compiled operators take it: nothing if it is the event's own.
        colours = block_size if flatten == "pixels" else 1
        channels_last = flatten != "channels_first"
        self.layout = [colours, self.channels // colours, self.positions] if channels_last else []
        self.product: Chain | PLUStages | None = None
        blocks = self.dim // block_size
        self.mixed = levels is None and partition is None and blocks & (blocks - 1) != 0
        if self.mixed:
            sizes = smooth_parts(blocks)
            stages = [_sequence(stages_of(size, block_size), order == "descending", bi_direction) for size in sizes]
        else:
            sizes, stages = self.plan.sizes, stages_of_plan(self.plan, block_size)
        self.sizes, self.stages = [block_size * size for size in sizes], stages
        if self.mixed:
            runs = _runs(stages)
            self.product = Chain((1, self.dim), (self._run(*run, shared, initialisation) for run in runs))
        elif block_size > 1:
            initial = _initial_matrices(sum(self.plan.lengths), 2 * block_size, initialisation).split(self.plan.lengths)
            initial = initial if self.plan.lengths else ()
            self.product = PLUStages(self.shape, self.sizes, stages, shared, initial, self.layout)
        else:
            self.weight = nn.Parameter(factors.initial_weight(sum(self.plan.lengths), initialisation))
            uses = factors.multiplicities(self.plan) if shared else None  # follows from the plan: not saved
            self.register_buffer("multiplicity", uses, persistent=False)

    def _run(self, two: bool, parts: list[list[Stage]], shared: bool, initialisation: str) -> InvertibleLinear:
        """Return a layer of stages of a mixed radix, all of free 2x2 matrices or none."""
        if two:
            levels = [[stage.blocks.bit_length() for stage in part] for part in parts]
            shape = (1, self.dim)
            return Butterfly(
                shape, levels=levels, partition=self.sizes, shared=shared, initialisation=cast(Any, initialisation)
            )
        initial = [
            _initial_matrices(stage.blocks * (1 if shared else stage.stride), stage.radix * stage.width, initialisation)
            for part in parts
            for stage in part
        ]
        return PLUStages((1, self.dim), self.sizes, parts, shared, initial)

    def _flat(self, x: Tensor) -> Tensor:
        """Map (N, C, *spatial) -> (N, 1, D), in the flatten order."""
        flat = x.reshape(len(x), *self.layout).permute(0, 3, 2, 1) if self.layout else x
        return flat.reshape(len(x), 1, self.dim)

    def _unflat(self, flat: Tensor) -> Tensor:
        """Map (N, 1, D) -> (N, C, *spatial): undo `_flat`."""
        if self.layout:
            flat = flat.view(len(flat), *reversed(self.layout)).permute(0, 3, 2, 1)
        return flat.reshape(len(flat), *self.shape)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply every factor; see the class for the log-det."""
        if self.product is not None:
            y, log_det = self.product(self._flat(x) if self.mixed else x)
            return (self._unflat(y) if self.mixed else y), log_det
        if kernels.serve(x, self.weight) or kernels.serve_bfloat16(x, self.weight):
            return torch.ops.invertbench.butterfly(x, self.weight, self.plan.flat, self.layout, self.plan.shared)
        return self._plain(self.weight, x, backwards=False), self.log_det()

    def log_det(self) -> Tensor:
        """Add up log|ad - bc| over all matrices; see the class for other stages."""
        if self.product is not None:
            return self.product.log_det()
        return factors.log_abs_det(self.weight, self.multiplicity)

    def inverse(self, y: Tensor) -> Tensor:
        """Undo every factor, the last one first. Compiled code needs no copy of the weight."""
        if self.product is not None:
            return self._unmix(self.product.inverse, y)
        if kernels.serve(y, self.weight):
            return self._compiled_inverse(y, self.weight)
        return self._plain(factors.invert_weight(self.weight), y, backwards=True)

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Invert the matrices once; the callable applies them. Compiled code inverts them in passing, each time."""
        if self.product is not None:
            return partial(self._unmix, self.product.inverter())
        if kernels.serve(self.weight):
            return partial(self._compiled_inverse, weight=self.weight.clone())
        return partial(self._plain, factors.invert_weight(self.weight), backwards=True)

    def _unmix(self, inverse: Callable[[Tensor], Tensor], y: Tensor) -> Tensor:
        """Apply the inverse of the product to events."""
        return self._unflat(inverse(self._flat(y))) if self.mixed else inverse(y)

    def _compiled_inverse(self, y: Tensor, weight: Tensor) -> Tensor:
        return torch.ops.invertbench.butterfly_inverse(y, weight, self.plan.flat, self.layout, self.plan.shared)

    def _plain(self, weight: Tensor, x: Tensor, *, backwards: bool) -> Tensor:
        """Apply every factor of free 2x2 matrices in plain PyTorch; backwards, the last one first."""
        apply = factors.apply_inverse if backwards else factors.apply
        entries = apply(weight, transposed(self._flat(x).flatten(1)), self.plan)
        return self._unflat(transposed(entries).unsqueeze(1))

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return the product of the factors' explicit matrices, between the two changes of order."""
        product = (
            product_matrix(self._chains(), self.sizes, self.weight) if self.product is None else self.product.dense()
        )
        return product if isinstance(self.product, PLUStages) else in_memory_order(product, self.layout)

    @torch.no_grad()
    def factors(self) -> list[tuple[str, Tensor]]:
        """Return B(i, D), block-wise B(i, D, C), as the paper writes a factor; of a mixed radix, its stages.

        They act on the entries in the order of `flatten`.
        """
        if self.mixed:
            names = [stage.name for _, parts in _runs(self.stages) for part in parts for stage in part]
        else:
            blocks = f", {self.block_size}" if self.block_size > 1 else ""
            parts = zip(self.sizes, self.plan.parts, strict=True)
            names = [f"B({level}, {size}{blocks})" for size, part in parts for level in part.levels]
        if self.product is not None:
            matrices = [matrix for _, matrix in self.product.factors()]
        else:
            matrices = [stage_matrix(held, stage).to_dense() for chain in self._chains() for stage, held in chain]
        return list(zip(names, matrices, strict=True))

    def _chains(self) -> list[list[tuple[Stage, Tensor]]]:
        """Return the stages of every part with their free 2x2 matrices."""
        pieces = iter(self.weight.permute(2, 0, 1).split(self.plan.lengths) if self.plan.lengths else ())
        return [[(stage, next(pieces)) for stage in part] for part in self.stages]

    @property
    def remark(self) -> str | None:
        """Return a remark if D was cut into parts that do not mix without a request for it, else None."""
        if not self.mixed or len(self.sizes) == 1:
            return None
        parts = ", ".join(map(str, self.sizes))
        primes = prime_factors(self.dim // self.block_size)
        product = " * ".join(map(str, primes))
        if self.block_size > 1:
            product += f" blocks of {self.block_size}"
        equals = f" = {product}" if product != str(self.dim) else ""
        return (
            f"D = {self.dim}{equals} is cut into parts of {parts}: the prime {primes[-1]} is above {LARGEST_PRIME}; "
            "parts do not mix"
        )

    def extra_repr(self) -> str:
        """Return the shape, the block size, and the levels or the radices in use."""
        if self.mixed:
            chosen = [[stage.radix for stage in part] for part in self.stages]
            name, sizes = "radices", self.sizes
        else:
            chosen = [list(part.levels) for part in self.plan.parts]
            name, sizes = "levels", self.plan.sizes
        parts = ", ".join(f"{size}: {each}" for size, each in zip(sizes, chosen, strict=True))
        return f"{super().extra_repr()}, {name}={{{parts}}}, shared={self.plan.shared}"


def _initial_matrices(count: int, size: int, initialisation: str) -> Tensor:
    """Return `count` square matrices, (count, size, size)."""
    return random_rotations(count, size) if initialisation == "rotation" else torch.eye(size).expand(count, -1, -1)


def _sequence(stages: list[Stage], descending: bool, bi_direction: bool) -> list[Stage]:
    """Return the stages in the order of application; the one in the middle twice would be no more than once."""
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
