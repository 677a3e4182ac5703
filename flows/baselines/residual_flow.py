"""Residual Flow (Chen et al., NeurIPS 2019): i-ResNet with an unbiased log-determinant and LipSwish."""

from __future__ import annotations

from flows.baselines.contraction import Contraction, Series
from flows.baselines.contraction_nets import ThreeConvolutions
from flows.baselines.levels import ResidualLevels
from flows.baselines.lipschitz import LipSwish
from flows.protocol import Shape


class ResidualFlow(ResidualLevels):
    """Residual Flow with LipSwish; the log-determinant by a power series under Russian roulette, unbiased.

    Each level squeezes and applies `steps` blocks y = x + g(x) of width `width`, each after an ActNorm; no channels
    are factored out between levels. The paper's final fully connected blocks are omitted.

    Args:
        shape: (C, H, W).
        levels: number of levels; both spatial axes must be divisible by 2^levels.
        steps: blocks per level.
        width: hidden channels of a block.
        seed: draws the initial weights.
        lipschitz: limit of the operator norm of each of a block's three convolutions.
        terms: number of terms of the power series that are always computed in training, before the roulette.
        evaluation_terms: the same in evaluation.
        stop: probability that the roulette stops after each further term.

    Raises:
        UnsupportedEvent: not images, or sides that these levels do not divide.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        levels: int,
        steps: int,
        width: int,
        seed: int = 0,
        lipschitz: float = 0.98,
        terms: int = 2,
        evaluation_terms: int = 20,
        stop: float = 0.5,
    ) -> None:
        def block(event: Shape, number: int) -> Contraction:
            net = ThreeConvolutions(event, width, lipschitz, LipSwish, first=number > 0)
            return Contraction(net, Series(terms, stop), Series(evaluation_terms, stop))

        super().__init__("residual_flow", shape, levels, steps, seed, block)
