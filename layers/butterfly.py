"""The butterfly layer: a product of sparse factors that mixes all entries of an event in log2(D) steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from layers.base import InvertibleLinear, UnsupportedShape
from layers.butterflies import blocks as block_factors
from layers.butterflies import fused as butterfly_fused
from layers.butterflies import pairs as factors
from layers.butterflies.plan import check_choice, make_plan
from layers.butterflies.stages import MixedRadix
from layers.kernels import load as kernels
from layers.linalg.layout import transposed
from layers.linalg.plu import PLUMatrices, random_rotations


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
    Shapes: every (C, L) and (C, H, W); levels that are asked for must be possible for D
    Code: which one serves the 2x2 matrices (measured: docs/throughput.md)
        CPU, float32 or float64, compiled kernels    csrc: all factors, and the log-det, in one pass
            up to 3 events                           one by one, with the unpacked weight
            more, whole vectors pair in memory       entries as lanes, the weight packed once per call
            else (small or odd strides)              events as lanes
        CUDA, the same and events in bfloat16        csrc: all factors in one launch, or a few (docs/cuda.md)
        otherwise, 32 events and 3 levels or more    plain PyTorch, levels fused (layers.butterflies.fused)
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
        capped: use as many levels as are possible where fewer than asked for are, instead of refusing. Not with
            explicit sequences.

    Raises:
        UnsupportedShape: D, or a part, does not allow a level or the block size; the block size does not divide the
            channels with "pixels"; or D is not full_depth_at / 2^s.
        ValueError: an option is not one of the values above.

    Source: ButterflyFlow (Meng et al., ICML 2022)
    """

    # Either the free 2x2 matrices (block_size 1) or the PLU factors of the 2C x 2C ones.
    weight: nn.Parameter
    pairs: PLUMatrices
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
        check_choice("initialisation", initialisation, ("identity", "rotation"))
        check_choice("flatten", flatten, ("channels_first", "channels_last", "pixels"))
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
        self.channels_last = flatten != "channels_first"
        self.colours = block_size if flatten == "pixels" else 1
        # The order of the entries, as compiled operators take it: nothing if it is the event's own.
        self.layout = [self.colours, self.channels // self.colours, self.positions] if self.channels_last else []
        self.mixed = None
        blocks = self.dim // block_size
        if levels is None and partition is None and blocks & (blocks - 1):
            descending = order == "descending"
            self.mixed = MixedRadix(self.dim, descending, bi_direction, shared, initialisation, block_size)
            return
        count = sum(self.plan.lengths)
        if block_size == 1:
            self.weight = nn.Parameter(factors.initial_weight(count, initialisation))
        else:
            self.pairs = PLUMatrices(_initial_blocks(count, 2 * block_size, initialisation))
        uses = factors.multiplicities(self.plan) if shared else None  # follows from the plan: not saved
        self.register_buffer("multiplicity", uses, persistent=False)

    def _entries(self, x: Tensor) -> Tensor:
        """Map (N, C, *spatial) -> (D, N), in the flatten order."""
        entries = transposed(x.flatten(1))
        if self.channels_last:  # with the batch last, rows of it move in one piece
            entries = entries.view(*self.layout, len(x)).permute(2, 1, 0, 3).reshape(entries.shape)
        return entries

    def _events(self, entries: Tensor) -> Tensor:
        """Map (D, N) -> (N, C, *spatial): undo `_entries`."""
        batch = entries.shape[1]
        if self.channels_last:
            channels = entries.view(*reversed(self.layout), batch).permute(2, 1, 0, 3)
            entries = channels.reshape(entries.shape)
        return transposed(entries).view(batch, *self.shape)

    def _flat(self, x: Tensor) -> Tensor:
        """Map (N, C, *spatial) -> (N, D), in the flatten order."""
        return x.reshape(len(x), *self.layout).permute(0, 3, 2, 1).flatten(1) if self.channels_last else x.flatten(1)

    def _unflat(self, flat: Tensor) -> Tensor:
        """Map (N, D) -> (N, C, *spatial): undo `_flat`."""
        if self.channels_last:
            flat = flat.view(-1, *reversed(self.layout)).permute(0, 3, 2, 1)
        return flat.reshape(len(flat), *self.shape)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply every factor; see the class for the log-det."""
        if self.mixed is not None:
            flat, log_det = self.mixed(self._flat(x))
            return self._unflat(flat), log_det
        if self.block_size > 1:
            y = block_factors.apply(self.pairs.matrices(), self._entries(x), self.plan)
            terms = self.pairs.log_abs_dets()
            return self._events(y), (terms if self.multiplicity is None else terms * self.multiplicity).sum()
        if kernels.serve(x, self.weight) or kernels.serve_bfloat16(x, self.weight):
            return torch.ops.invertbench.butterfly(x, self.weight, self.plan.flat, self.layout, self.plan.shared)
        way = butterfly_fused if butterfly_fused.pays(self.plan, len(x)) else factors
        y = way.apply(self.weight, self._entries(x), self.plan)
        return self._events(y), factors.log_abs_det(self.weight, self.multiplicity)

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Invert the matrices once; the callable applies them. Compiled code inverts them in passing, each time."""
        if self.mixed is not None:
            solve = self.mixed.solver()
            return lambda y: self._unflat(solve(self._flat(y)))
        if self.block_size == 1 and kernels.serve(self.weight):
            weight, plan = self.weight.clone(), self.plan
            return lambda y: torch.ops.invertbench.butterfly_inverse(y, weight, plan.flat, self.layout, plan.shared)
        if self.block_size == 1:
            inverse_weight = factors.invert_weight(self.weight)
        else:
            inverse_weight = self.pairs.inverse_matrices()

        def invert(y: Tensor) -> Tensor:
            entries = self._entries(y)
            if self.block_size > 1:
                return self._events(block_factors.apply_inverse(inverse_weight, entries, self.plan))
            way = butterfly_fused if butterfly_fused.pays(self.plan, len(y)) else factors
            return self._events(way.apply_inverse(inverse_weight, entries, self.plan))

        return invert

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return the product of the factors' explicit matrices, between the two changes of order."""
        if self.mixed is not None:
            product = self.mixed.dense()
        elif self.block_size == 1:
            product = factors.dense(self.weight, self.plan)
        else:
            product = block_factors.dense(self.pairs.matrices(), self.plan)
        if not self.channels_last:
            return product
        # Entry j of the flattened event is entry row_major[j] of the event in row-major order.
        row_major = torch.arange(self.dim, device=product.device).view(self.colours, -1, self.positions)
        place = row_major.permute(2, 1, 0).flatten().argsort()
        return product[place][:, place]

    @torch.no_grad()
    def factors(self) -> list[tuple[str, Tensor]]:
        """Return B(i, D), block-wise B(i, D, C), as the paper writes a factor; of a mixed radix, its stages.

        They act on the entries in the order of `flatten`.
        """
        if self.mixed is not None:
            return [(stage.name, matrix.to_dense()) for stage, matrix in self.mixed.factors()]
        weight = self.weight.permute(2, 0, 1) if self.block_size == 1 else self.pairs.matrices()
        places = [(level, part.size) for part in self.plan.parts for level in part.levels]
        pieces = weight.split(self.plan.lengths) if places else ()
        blocks = f", {self.block_size}" if self.block_size > 1 else ""
        return [
            (
                f"B({level}, {size * self.block_size}{blocks})",
                block_factors.factor_matrix(matrices, level, size).to_dense(),
            )
            for (level, size), matrices in zip(places, pieces, strict=True)
        ]

    @property
    def remark(self) -> str | None:
        """A remark that D was cut into parts that do not mix, unless requested."""
        return None if self.mixed is None else self.mixed.remark

    def extra_repr(self) -> str:
        """Return the shape and the levels in use."""
        blocks = f", block_size={self.block_size}" if self.block_size > 1 else ""
        if self.mixed is not None:
            return f"{super().extra_repr()}, radices={{{self.mixed.summary()}}}, shared={self.plan.shared}{blocks}"
        parts = ", ".join(f"{part.size}: {list(part.levels)}" for part in self.plan.parts)
        return f"{super().extra_repr()}, levels={{{parts}}}, shared={self.plan.shared}{blocks}"


def _initial_blocks(count: int, size: int, initialisation: str) -> Tensor:
    """Return `count` square matrices, (count, size, size)."""
    if initialisation == "rotation":
        return random_rotations(count, size)
    return torch.eye(size).expand(count, size, size)
