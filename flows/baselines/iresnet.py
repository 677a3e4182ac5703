"""i-ResNet (Behrmann et al., ICML 2019): residual blocks that are contractions, with a truncated power series."""

from __future__ import annotations

from torch import nn

from flows.baselines.contraction import Contraction, Series
from flows.baselines.contraction_nets import ThreeConvolutions
from flows.baselines.levels import ResidualLevels
from flows.protocol import Shape


class IResNet(ResidualLevels):
    """Invertible residual network with ELU; the log-determinant by a truncated power series, so biased.

    The series has few terms in training, as in the paper, and enough terms in evaluation
    that an audit can compare its truncation error with the exact value.

    Args:
        shape, levels, steps, width, seed, lipschitz: see `flows.baselines.residual_flow.ResidualFlow`.
        terms: number of terms of the power series in training.
        evaluation_terms: the same in evaluation.
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
