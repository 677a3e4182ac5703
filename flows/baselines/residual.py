"""Flows of residual blocks that are contractions: i-ResNet, Residual Flow and i-DenseNet.

At each level they squeeze and apply blocks y = x + g(x), each after an ActNorm (see `flows.contraction`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flows.actnorm import ActNorm
from flows.contraction import Contraction, Network, Series, SpectralConvolution
from flows.protocol import Flow, Shape, drawn
from flows.shapes import images_only, level_shapes
from flows.squeeze import Squeeze
from layers.base import check_whole


class LipSwish(nn.Module):
    """x * sigmoid(softplus(beta) x) / 1.1 (Chen et al. 2019): smooth, of slope at most 1.0998 / 1.1 for any beta."""

    def __init__(self) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.tensor(math.log(math.expm1(1.0))))  # softplus(beta) = 1

    def forward(self, x: Tensor) -> Tensor:
        """Apply the activation to each entry."""
        return x * torch.sigmoid(F.softplus(self.beta) * x) / 1.1


class CLipSwish(LipSwish):
    """[LipSwish(x), LipSwish(-x)] / 1.004, twice the channels (Perugachi-Diaz et al. 2021).

    With s the slope of swish, s(x) + s(-x) = 1 and s <= 1.0998, so the norm of the two slopes is at most
    sqrt(1.0998^2 + 0.0998^2) / 1.1 = 1.0039: the map's Lipschitz constant is below 1.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, *spatial) to (N, 2C, *spatial)."""
        return torch.cat([super().forward(x), super().forward(-x)], dim=1) / 1.004


class ThreeConvolutions(Network):
    """3x3 (C -> width), 1x1, 3x3 (-> C), an activation before each; before the first only if requested.

    Behrmann et al. (2019) and Chen et al. (2019) have this shape. Lip(g) <= product of the three norms.
    """

    def __init__(
        self, shape: Shape, width: int, limit: float, activation: Callable[[], nn.Module], first: bool
    ) -> None:
        super().__init__()
        channels, spatial = shape[0], shape[1:]
        sizes = [(channels, width, 3), (width, width, 1), (width, channels, 3)]
        self.layers = nn.ModuleList(SpectralConvolution(i, o, kernel, spatial, limit) for i, o, kernel in sizes)
        self.activations = nn.ModuleList(
            activation() if first or number else nn.Identity() for number in range(len(sizes))
        )

    def forward(self, x: Tensor, weights: list[Tensor]) -> Tensor:
        """Return g(x)."""
        for activation, (_, convolution), weight in zip(self.activations, self.convolutions(), weights, strict=True):
            x = convolution.convolve(activation(x), weight, convolution.bias)
        return x

    def lipschitz(self, norms: list[float]) -> float:
        """Return the product of the norms."""
        return math.prod(norms)


class DenselyConnected(Network):
    """Each layer returns [a h, b CLipSwish(conv(h))] with learned a^2 + b^2 = 1, and a last 1x1 maps to C channels.

    (i-DenseNet, Perugachi-Diaz et al. 2021.) A layer's constant is at most sqrt(a^2 + b^2 n^2) for the norm n of its
    3x3 convolution, and Lip(g) at most the product of these and of the last norm. a and b are softplus of two learned
    numbers, normalised, and equal at first.

    Args:
        shape: event shape, (C, H, W).
        growth: channels of each layer's convolution; CLipSwish doubles them.
        depth: number of layers.
        limit: limit of each convolution's norm.
    """

    def __init__(self, shape: Shape, growth: int, depth: int, limit: float) -> None:
        super().__init__()
        channels, spatial = shape[0], shape[1:]
        inputs = [channels + 2 * growth * number for number in range(depth + 1)]
        self.layers = nn.ModuleList(SpectralConvolution(i, growth, 3, spatial, limit) for i in inputs[:-1])
        self.last = SpectralConvolution(inputs[-1], channels, 1, spatial, limit)
        self.activations = nn.ModuleList(CLipSwish() for _ in range(depth))
        self.concatenation = nn.Parameter(torch.zeros(depth, 2))

    def shares(self) -> Tensor:
        """Return a and b of each layer, (depth, 2)."""
        return F.normalize(F.softplus(self.concatenation), dim=1)

    def forward(self, x: Tensor, weights: list[Tensor]) -> Tensor:
        """Return g(x)."""
        parts = zip(self.activations, self.shares(), self.convolutions(), weights, strict=False)
        for activation, (kept, new), (_, convolution), weight in parts:
            x = torch.cat([kept * x, new * activation(convolution.convolve(x, weight, convolution.bias))], dim=1)
        return self.last.convolve(x, weights[-1], self.last.bias)

    def lipschitz(self, norms: list[float]) -> float:
        """Return the product over layers of sqrt(a^2 + b^2 n^2), times the last norm."""
        layers = zip(self.shares().double().tolist(), norms, strict=False)
        return math.prod(math.hypot(kept, new * norm) for (kept, new), norm in layers) * norms[-1]


class ResidualFlow(Flow):
    """Residual Flow (Chen et al., NeurIPS 2019) with LipSwish: an unbiased log-determinant, by Russian roulette.

    Each level squeezes and applies `steps` blocks y = x + g(x), each after an ActNorm; no channels are factored out
    between levels. The paper's final fully connected blocks are omitted. A subclass defines other blocks.

    Args:
        shape: (C, H, W).
        levels: number of levels; both spatial axes must be divisible by 2^levels.
        steps: blocks per level.
        width: hidden channels of a block.
        seed: draws the initial weights.

    Attributes:
        name: in messages.
        limit: of the operator norm of each convolution of a block.
        training, evaluation: the series of the log-determinants in `train()` and in `eval()`.

    Raises:
        UnsupportedEvent: not images, or sides that these levels do not divide.
    """

    splits = False
    name: ClassVar[str] = "residual_flow"
    limit: ClassVar[float] = 0.98
    training_series: ClassVar[Series] = Series(2, 0.5)
    evaluation_series: ClassVar[Series] = Series(20, 0.5)

    def __init__(self, shape: Shape, *, levels: int, steps: int, width: int, seed: int = 0) -> None:
        super().__init__()
        images_only(self.name, shape)
        self.shape, self.dim = tuple(shape), math.prod(shape)
        self.level_shapes, event = [], self.shape
        parts_of_levels = []
        for level in range(levels):
            parts: list[tuple[str, nn.Module]] = [(f"level{level}/squeeze", Squeeze(event))]
            event = level_shapes(event, 1)[0]
            self.level_shapes.append(event)
            for step in range(steps):
                block = partial(self._block, event, width, level + step > 0)
                parts += drawn(
                    seed, f"level{level}/step{step}", actnorm=partial(ActNorm, event[0]), block=block
                ).items()
            parts_of_levels.append(parts)
        self.set_levels(parts_of_levels)

    def _block(self, event: Shape, width: int, later: bool) -> Contraction:
        return Contraction(self.network(event, width, later), self.training_series, self.evaluation_series)

    def network(self, event: Shape, width: int, later: bool) -> Network:
        """Return the network g of a block, which is the flow's first block or a later one."""
        return ThreeConvolutions(event, width, self.limit, LipSwish, first=later)


class IResNet(ResidualFlow):
    """i-ResNet (Behrmann et al., ICML 2019) with ELU; the log-determinant by a truncated power series, so biased.

    The series has few terms in training, as in the paper, and enough terms in evaluation that an audit can compare its
    truncation error with the exact value. Sizes as for `ResidualFlow`.
    """

    name = "iresnet"
    limit = 0.9
    training_series, evaluation_series = Series(5), Series(20)

    def network(self, event: Shape, width: int, later: bool) -> Network:
        """Return the network g of a block."""
        return ThreeConvolutions(event, width, self.limit, nn.ELU, first=later)


class IDenseNet(ResidualFlow):
    """i-DenseNet (Perugachi-Diaz et al., NeurIPS 2021), with CLipSwish and learned concatenation.

    The log-determinant is Residual Flow's, unbiased.

    Args:
        shape, levels, steps, seed: see `ResidualFlow`.
        width: growth of the dense layers, the channels of each one's convolution (the paper's 172).
        depth: dense layers of a block.
    """

    name = "idensenet"

    def __init__(self, shape: Shape, *, levels: int, steps: int, width: int, seed: int = 0, depth: int = 3) -> None:
        check_whole("idensenet", "depth", depth)
        self.depth = depth
        super().__init__(shape, levels=levels, steps=steps, width=width, seed=seed)

    def network(self, event: Shape, width: int, later: bool) -> Network:
        """Return the network g of a block."""
        return DenselyConnected(event, width, self.depth, self.limit)
