"""The autoregressive backbone: blocks of a causal transformer, as in TarFlow, with any linear layer between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, cast, get_args

import torch
from torch import Tensor, nn

from flows.actnorm import ActNorm
from flows.affine import GATES, Gate, GateName
from flows.attention import BLOCKS, Block, Past, draw_weights
from flows.backbone import Backbone, MakeLayer
from flows.permutation import Permutation
from flows.protocol import Dense, Shape, drawn
from flows.shapes import UnsupportedEvent, level_shapes
from flows.squeeze import Squeeze
from layers.base import check_choice, check_whole
from layers.linalg.precision import full_precision


class AutoregressiveBlock(Dense):
    """y_i = x_i exp(a_i) + b_i at each position i, with a_i and b_i functions of the positions before it.

    A causal transformer computes them: a linear map of each position (c -> width) plus a learned embedding of it,
    `flows.attention.BLOCKS` pre-norm blocks, and a linear map, initially zero (-> 2c), whose output at position i - 1
    gives s_i and b_i exp(-a_i); a_i is the log-gate of s_i. The first position is unchanged. log|det| = the sum of all
    a_i. Positions are in row-major order.

    The inverse computes one position after the other, with the keys and values of those before it. Neither way is
    rounded further under `torch.autocast`: it would round them differently, so that the inverse would be off.

    Args:
        shape: (c, *spatial), of at least two positions.
        width: of the transformer.
        gate: from s to the log-scale.
    """

    def __init__(self, shape: Shape, width: int, gate: Gate) -> None:
        super().__init__()
        channels, positions = shape[0], math.prod(shape[1:])
        self.gate = gate
        self.first = nn.Linear(channels, width)
        self.position = nn.Parameter(torch.randn(positions - 1, width) / math.sqrt(width))
        self.blocks = nn.ModuleList(Block(width, causal=True) for _ in range(BLOCKS))
        self.last = nn.Linear(width, 2 * channels)
        draw_weights(self, self.last)

    @full_precision
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map (N, c, *spatial) to the same shape; return y and log|det| of shape (N,)."""
        values = x.flatten(2).mT
        tokens = self.first(values[:, :-1]) + self.position
        for block in self.blocks:
            tokens = block(tokens)
        log_scale, shift = self._affine(tokens)
        y = torch.cat([values[:, :1], (values[:, 1:] + shift) * log_scale.exp()], dim=1)
        return y.mT.reshape(x.shape), log_scale.flatten(1).sum(1)

    @full_precision
    def inverse(self, y: Tensor) -> Tensor:
        """Return x, computed position by position."""
        values = y.flatten(2).mT.unbind(1)
        x, pasts = [values[0]], list[Past | None]([None] * len(self.blocks))
        for place, value in enumerate(values[1:]):
            token = self.first(x[-1][:, None]) + self.position[place]
            for index, block in enumerate(self.blocks):
                token, pasts[index] = cast(Block, block).step(token, pasts[index])
            log_scale, shift = (part.squeeze(1) for part in self._affine(token))
            x.append(value * (-log_scale).exp() - shift)
        return torch.stack(x, dim=2).reshape(y.shape)

    def _affine(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-scale and shift, each (N, positions, c)."""
        s, shift = self.last(tokens).chunk(2, dim=2)
        return self.gate(s), shift


class Autoregressive(Backbone):
    """x -> z: patches, then `steps` autoregressive blocks, between which stand the layer under test and a turn.

    An image becomes patches of 2^levels x 2^levels pixels, a sequence frames of 2^levels samples: `levels` squeezes,
    after which each position has all entries of a patch as its channels. Then, `steps` times,

        ActNorm, autoregressive block,

    and between two of them the layer under test, on events of the patches' shape, and a turn, which reverses the order
    of the positions. Nothing is factored out. log p(x) = log N(z; 0, I) + log|det dz/dx|.

    As in TarFlow (Zhai et al., "Normalizing Flows are Capable Generative Models", ICML 2025, and its released code) are
    the patches, the causal transformer with its affine map, the first position that stays, and the turn. Not as there:
    an ActNorm precedes each block; the scales may be bounded (`gate="bounded"`; the published one is exp(s)); blocks
    have two transformer layers of at most four heads, in place of eight layers with heads of 64 channels; they start as
    the identity, where the released last map has a random bias, and their other weights are drawn as in the attention
    couplings; the order stays turned after a block, so that a layer acts on it; and nothing adds Gaussian noise to the
    data, denoises or guides samples.

    Every weight is drawn under (seed, path), such as (0, "step1/block"), so all blocks are equal whichever layer is
    tested.

    Args:
        shape: event shape (C, L) or (C, H, W).
        make_layer: event shape -> the layer under test (see `flows.backbones.glow.Glow`).
        make_mixer: the same for a 1x1 before the layer under test; None for none.
        levels: squeezes; 2^levels must divide every spatial axis.
        steps: autoregressive blocks, at least 2; one fewer layers under test.
        width: of the transformers.
        gate: scale of the blocks: exp(s), as published, or in (0.5, 1.5).
        turn: whether the order of the positions is reversed after each layer under test.
        seed: draws the initial weights.
        order: as for `flows.backbones.glow.Glow`.

    Raises:
        UnsupportedEvent: the shape does not allow these squeezes, or leaves one position, which has no order.
        ValueError: an unknown gate, fewer than two steps, an order that is not a permutation.
        Exceptions of make_layer and make_mixer propagate unchanged.
    """

    splits = False
    mixed: ClassVar[bool] = False
    least_steps: ClassVar[int] = 2
    capacities: ClassVar[Mapping[str, str]] = {"width": "width of blocks", "steps": "blocks"}

    def __init__(
        self,
        shape: Shape,
        make_layer: MakeLayer,
        make_mixer: MakeLayer | None = None,
        *,
        levels: int,
        steps: int,
        width: int,
        gate: GateName = "published",
        turn: bool = True,
        seed: int = 0,
        order: Tensor | None = None,
    ) -> None:
        super().__init__()
        check_choice("autoregressive", "gate", gate, get_args(GateName))
        check_whole("autoregressive", "steps", steps, self.least_steps)
        self.shape, self.dim = tuple(shape), math.prod(shape)
        shapes = [self.shape, *level_shapes(self.shape, levels, split=False)]
        self.level_shapes = [patches] = self.layer_shapes(self.shape, levels)
        parts: list[tuple[str, nn.Module]] = [] if order is None else [("permutation", Permutation(self.shape, order))]
        parts += [(f"squeeze{level}", Squeeze(event)) for level, event in enumerate(shapes[:-1])]
        positions = math.prod(patches[1:])
        turned = [first + place for first in range(0, self.dim, positions) for place in reversed(range(positions))]
        for step in range(steps):
            between: dict[str, Callable[[], nn.Module] | None] = {
                "mixer": make_mixer and partial(make_mixer, patches),
                "layer": partial(make_layer, patches),
                "turn": partial(Permutation, patches, turned) if turn else None,
            }
            actnorm, block = partial(ActNorm, patches[0]), partial(AutoregressiveBlock, patches, width, GATES[gate])
            if step:
                parts += drawn(seed, f"step{step}", **between).items()
            parts += drawn(seed, f"step{step}", actnorm=actnorm, block=block).items()
        self.set_levels([parts])

    @classmethod
    def layer_shapes(cls, shape: Shape, levels: int) -> list[Shape]:
        """Return the shape of the patches."""
        patches = level_shapes(shape, levels, split=False)[-1]
        if math.prod(patches[1:]) == 1:
            fewer = f"use levels = {levels - 1}" if levels > 1 else "use the backbone glow, or a baseline"
            raise UnsupportedEvent(
                f"event shape {tuple(shape)} with levels = {levels}: autoregressive blocks need at least two positions "
                f"after {levels} squeeze{'s' * (levels > 1)}; {fewer}"
            )
        return [patches]

    @classmethod
    def described(cls, settings: Any) -> str:
        """Return the number and the width of the blocks, the patches, the turn and the gate."""
        size = 2**settings.levels
        text = f"{settings.steps} autoregressive blocks of width {settings.width} on patches of {size} entries per axis"
        text += ", layers before the turn" if settings.turn else ", layers in place of the turn"
        return text + ", scales bounded to (0.5, 1.5)" * (settings.gate == "bounded")

    @classmethod
    def control(cls, layer: str, options: Mapping[str, Any], keep_mixer: bool) -> str | None:
        """Return also that a row is the turn alone."""
        if layer == "fixed" and options.get("map") == "turn":
            return "the turn of positions alone"
        return super().control(layer, options, keep_mixer)
