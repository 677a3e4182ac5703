"""i-ResNet (Behrmann et al., ICML 2019): residual blocks that are contractions, with a truncated power series."""

from __future__ import annotations

from torch import nn

from flows.baselines.contraction import Contraction, Series
from flows.baselines.contraction_nets import ThreeConvolutions
from flows.baselines.levels import ResidualLevels
from flows.protocol import Shape


class IResNet(ResidualLevels):
    """Invertible residual network with ELU; the log-determinant by a truncated power series, so biased.

    Each level squeezes and applies `steps` blocks y = x + g(x) of width `width`, each after an ActNorm; no channels are
    factored out between levels. The series has few terms in training, as in the paper, and enough terms in evaluation
    that an audit can compare its truncation error with the exact value.

    Args:
        shape: (C, H, W).
        levels: number of levels; both spatial axes must be divisible by 2^levels.
        steps: blocks per level.
        width: hidden channels of a block.
        seed: draws the initial weights.
        lipschitz: limit of the operator norm of each of a block's three convolutions.
        terms: number of terms of the power series in training.
        evaluation_terms: the same in evaluation.

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
        lipschitz: float = 0.9,
        terms: int = 5,
        evaluation_terms: int = 20,
    ) -> None:
        def block(event: Shape, number: int) -> Contraction:
            net = ThreeConvolutions(event, width, lipschitz, nn.ELU, first=number > 0)
            return Contraction(net, Series(terms), Series(evaluation_terms))

        super().__init__("iresnet", shape, levels, steps, seed, block)
