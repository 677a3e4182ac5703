"""i-DenseNet (Perugachi-Diaz et al., NeurIPS 2021): Residual Flow with densely connected contractions."""

from __future__ import annotations

from flows.baselines.contraction import Contraction, Series
from flows.baselines.contraction_nets import DenselyConnected
from flows.baselines.levels import ResidualLevels
from flows.protocol import Shape


class IDenseNet(ResidualLevels):
    """Invertible dense network with CLipSwish and learned concatenation; unbiased log-determinant as Residual Flow's.

    Args:
        width: growth of the dense layers, the channels of each one's convolution (the paper's 172).
        depth: dense layers of a block.
        lipschitz: limit of the operator norm of each convolution, and so of a block.
        others: see `flows.baselines.residual_flow.ResidualFlow`.
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
