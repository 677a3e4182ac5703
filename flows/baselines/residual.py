"""Flows of residual blocks that are contractions: i-ResNet, Residual Flow and i-DenseNet.

At each level they squeeze and apply blocks y = x + g(x), each after an ActNorm; the networks g are in
`flows.baselines.contraction_nets`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import nn

from flows.actnorm import ActNorm
from flows.baselines.contraction import Contraction, Series
from flows.baselines.contraction_nets import DenselyConnected, ThreeConvolutions
from flows.baselines.lipschitz import LipSwish
from flows.protocol import Flow, Shape, seeded
from flows.shapes import images_only, level_shapes
from flows.squeeze import Squeeze


class ResidualLevels(Flow):
    """Squeeze -> steps of (ActNorm -> block), `levels` times; nothing is factored out between levels.

    Args:
        name: name of the flow, for messages.
        shape, levels, steps, seed: see the flows.
        make_block: function (event shape, number of the block in the flow) -> the block, each made with its own stream
            of random numbers.

    Raises:
        UnsupportedEvent: not images, or sides that these levels do not divide.
    """

    splits = False

    def __init__(
        self, name: str, shape: Shape, levels: int, steps: int, seed: int, make_block: Callable[[Shape, int], nn.Module]
    ) -> None:
        super().__init__()
        images_only(name, shape)
        self.shape, self.dim = tuple(shape), math.prod(shape)
        self.level_shapes, event = [], self.shape
        parts_of_levels = []
        for level in range(levels):
            parts: list[tuple[str, nn.Module]] = [(f"level{level}/squeeze", Squeeze(event))]
            event = level_shapes(event, 1)[0]
            self.level_shapes.append(event)
            for step in range(steps):
                path = f"level{level}/step{step}"
                with seeded(seed, f"{path}/block"):
                    block = make_block(event, level * steps + step)
                parts += [(f"{path}/actnorm", ActNorm(event[0])), (f"{path}/block", block)]
            parts_of_levels.append(parts)
        self.set_levels(parts_of_levels)


class IResNet(ResidualLevels):
    """i-ResNet (Behrmann et al., ICML 2019) with ELU; the log-determinant by a truncated power series, so biased.

    The series has few terms in training, as in the paper, and enough terms in evaluation
    that an audit can compare its truncation error with the exact value.

    Args:
        shape, levels, steps, width, seed, lipschitz: see `ResidualFlow`.
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


class ResidualFlow(ResidualLevels):
    """Residual Flow (Chen et al., NeurIPS 2019) with LipSwish: i-ResNet with an unbiased log-determinant.

    The power series of the log-determinant stops by Russian roulette.

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


class IDenseNet(ResidualLevels):
    """i-DenseNet (Perugachi-Diaz et al., NeurIPS 2021), with CLipSwish and learned concatenation.

    The log-determinant is Residual Flow's, unbiased.

    Args:
        width: growth of the dense layers, the channels of each one's convolution (the paper's 172).
        depth: dense layers of a block.
        lipschitz: limit of the operator norm of each convolution, and so of a block.
        others: see `ResidualFlow`.
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
