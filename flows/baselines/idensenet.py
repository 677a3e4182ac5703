"""i-DenseNet (Perugachi-Diaz et al., NeurIPS 2021): Residual Flow with densely connected contractions."""

from __future__ import annotations

import math

from flows.baselines.contraction import Contraction, Series
from flows.baselines.contraction_nets import DenselyConnected
from flows.baselines.levels import images_only, residual_levels, residual_parts
from flows.protocol import Flow, Part, Shape


class IDenseNet(Flow):
    """Invertible dense network with CLipSwish and learned concatenation; unbiased log-determinant as Residual Flow's.

    Each level squeezes and applies `steps` blocks y = x + g(x), each behind an ActNorm; no channels leave between
    levels. `width` is the growth: the channels of each dense layer's convolution (the paper's 172).

    Args:
        shape: (C, H, W).
        levels: number of levels; both spatial axes must be divisible by 2^levels.
        steps: blocks per level.
        width: growth of the dense layers.
        seed: draws the initial weights.
        depth: dense layers of a block.
        lipschitz: limit of the operator norm of each convolution, and so of a block.
        terms: of the power series that are always computed in training, before the roulette.
        evaluation_terms: in evaluation.
        stop: probability that the roulette stops after each further term.

    Raises:
        UnsupportedEvent: no images, or sides that these levels do not divide.
    """

    splits = False

    def __init__(
        self,
        shape: Shape,
        *,
        levels: int,
        steps: int,
        width: int,
        seed: int = 0,
        depth: int = 3,
        lipschitz: float = 0.98,
        terms: int = 2,
        evaluation_terms: int = 20,
        stop: float = 0.5,
    ) -> None:
        super().__init__()
        images_only("idensenet", shape)
        if depth < 1:
            raise ValueError(f"idensenet: depth = {depth}; it must be at least 1")
        self.shape, self.dim = tuple(shape), math.prod(shape)

        def block(event: Shape, number: int) -> Contraction:
            net = DenselyConnected(event, width, depth, lipschitz)
            return Contraction(net, Series(terms, stop), Series(evaluation_terms, stop))

        self.level_shapes, self.levels = residual_levels(self.shape, levels, steps, seed, block)

    def parts(self) -> list[list[Part]]:
        """Per level, (path, bijection)."""
        return residual_parts(self.levels)
