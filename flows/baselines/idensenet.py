"""i-DenseNet (Perugachi-Diaz et al., NeurIPS 2021): Residual Flow with densely connected contractions."""

from __future__ import annotations

from flows.baselines.contraction import Contraction, Series
from flows.baselines.contraction_nets import DenselyConnected
from flows.baselines.levels import ResidualLevels
from flows.protocol import Shape


class IDenseNet(ResidualLevels):
    """Invertible dense network with CLipSwish and learned concatenation; unbiased log-determinant as Residual Flow's.

    Each level squeezes and applies `steps` blocks y = x + g(x), each after an ActNorm; no channels are factored out
    between levels. `width` is the growth: the channels of each dense layer's convolution (the paper's 172).

    Args:
        shape: (C, H, W).
        levels: number of levels; both spatial axes must be divisible by 2^levels.
        steps: blocks per level.
        width: growth of the dense layers.
        seed: draws the initial weights.
        depth: dense layers of a block.
        lipschitz: limit of the operator norm of each convolution, and so of a block.
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
        depth: int = 3,
        lipschitz: float = 0.98,
        terms: int = 2,
        evaluation_terms: int = 20,
        stop: float = 0.5,
    ) -> None:
        if depth < 1:
            raise ValueError(f"idensenet: depth = {depth}; it must be at least 1")

        def block(event: Shape, number: int) -> Contraction:
            net = DenselyConnected(event, width, depth, lipschitz)
            return Contraction(net, Series(terms, stop), Series(evaluation_terms, stop))

        super().__init__("idensenet", shape, levels, steps, seed, block)
