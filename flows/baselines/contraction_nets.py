"""The networks g of the residual baselines: a plain one of three convolutions, and a densely connected one."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flows.baselines.contraction import Network
from flows.baselines.lipschitz import CLipSwish, SpectralConvolution

Shape = tuple[int, ...]


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
