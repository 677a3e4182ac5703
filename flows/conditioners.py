"""The coupling networks: from the kept channels to the log-scale and shift of the others."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from flows.actnorm import ActNorm, standardisation
from flows.affine import Gate, affine_coupling, exponential_gate, sigmoid_gate
from flows.coupled import Perceptron, convolutions, couple, operands

_CONVOLUTION: dict[int, type[nn.Conv1d] | type[nn.Conv2d]] = {1: nn.Conv1d, 2: nn.Conv2d}


class Conditioner(nn.Module):
    """Kept channels (N, kept, *spatial) -> log-scale and shift, each (N, moved, *spatial)."""

    @abstractmethod
    def forward(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-scale and the shift."""

    def couple(self, x: Tensor, kept: int) -> tuple[Tensor, Tensor]:
        """Scale and shift all channels but the first `kept`, (N, C, *spatial); return y and log|det| of shape (N,)."""
        unchanged, moved = x.split([kept, x.shape[1] - kept], dim=1)
        return affine_coupling(unchanged, moved, *self(unchanged))

    def initialise(self, kept: Tensor) -> None:
        """Initialise on data, from the kept channels, if the network has such an initialisation."""


class WeightNormConditioner(Conditioner):
    """The image coupling of ButterflyFlow (Meng et al., ICML 2022): scale = gate(s), shift = mu.

    3x3 convolution (kept -> width), ELU, 1x1, ELU, 3x3 zero-initialised (-> 2 * moved), each weight-normalised
    and with a bias. Weight normalisation is initialised on data (Salimans & Kingma 2016), so that every hidden
    channel starts with zero mean and unit variance. The published gate is sigmoid(s + 2).
    """

    def __init__(self, kept: int, moved: int, width: int, axes: int, gate: Gate = sigmoid_gate) -> None:
        super().__init__()
        self.gate = gate
        self.first = weight_norm_convolution(axes, kept, width, 3)
        self.second = weight_norm_convolution(axes, width, width, 1)
        self.last = weight_norm_convolution(axes, width, 2 * moved, 3)
        nn.init.zeros_(gain(self.last))

    def forward(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Return log gate(s) and mu."""
        shift, s = convolutions(kept, self.first, self.second, self.last).chunk(2, dim=1)
        return self.gate(s), shift

    def couple(self, x: Tensor, kept: int) -> tuple[Tensor, Tensor]:
        """Scale and shift by one operation."""
        return couple("convolutions", x, kept, self.gate, operands(self.first, self.second, self.last))

    @torch.no_grad()
    def initialise(self, kept: Tensor) -> None:
        """Initialise to zero mean and unit variance before each ELU; the output stays zero."""
        hidden = kept
        for convolution in (self.first, self.second):
            standardise(convolution, hidden)
            hidden = F.elu(convolution(hidden))


class GlowConditioner(Conditioner):
    """Glow's coupling (Kingma & Dhariwal 2018): y = (x + shift) * gate(s).

    3x3 convolution (kept -> width), ActNorm, ReLU, 1x1, ActNorm, ReLU, 3x3 zero convolution (-> 2 * moved). The
    published gate is sigmoid(s + 2).
    """

    def __init__(self, kept: int, moved: int, width: int, axes: int, gate: Gate = sigmoid_gate) -> None:
        super().__init__()
        self.gate = gate
        convolution = _CONVOLUTION[axes]
        self.first = convolution(kept, width, 3, padding=1, bias=False)
        self.first_norm = ActNorm(width)
        self.second = convolution(width, width, 1, bias=False)
        self.second_norm = ActNorm(width)
        self.last = ZeroConvolution(axes, width, 2 * moved)
        for hidden in (self.first, self.second):
            nn.init.normal_(hidden.weight, std=0.05)

    def forward(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Return log gate(s), and shift * gate(s)."""
        hidden = F.relu(self.first_norm(self.first(_channels_last(kept)))[0])
        hidden = F.relu(self.second_norm(self.second(hidden))[0])
        shift, s = self.last(hidden).contiguous().chunk(2, dim=1)
        log_scale = self.gate(s)
        return log_scale, shift * log_scale.exp()

    @torch.no_grad()
    def initialise(self, kept: Tensor) -> None:
        """Initialise to zero mean and unit variance before each ReLU."""
        hidden = kept
        for convolution, norm in ((self.first, self.first_norm), (self.second, self.second_norm)):
            hidden = convolution(hidden)
            norm.initialise(hidden)
            hidden = F.relu(norm(hidden)[0])


class PointwiseConditioner(Conditioner):
    """The sequence coupling of ButterflyFlow (Meng et al., ICML 2022): scale = gate(s), shift = t.

    Two MLPs over the channels of one position, without any context in time: kept -> width -> width -> moved
    with biases, tanh in the one for s and ReLU in the one for t, orthogonal initial weights. Only the linear layer
    of the step mixes positions. The published gate is exp(s).
    """

    def __init__(self, kept: int, moved: int, width: int, gate: Gate = exponential_gate) -> None:
        super().__init__()
        self.gate = gate
        self.log_scale = Perceptron(kept, moved, width, nn.Tanh)
        self.shift = Perceptron(kept, moved, width, nn.ReLU)

    def forward(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Return log gate(s) and t."""
        places = kept.flatten(2)
        s, shift = (net(places).unflatten(2, kept.shape[2:]) for net in (self.log_scale, self.shift))
        return self.gate(s), shift

    def couple(self, x: Tensor, kept: int) -> tuple[Tensor, Tensor]:
        """Scale and shift by one operation."""
        weights = self.log_scale.operands() + self.shift.operands()
        y, log_det = couple("perceptrons", x.flatten(2), kept, self.gate, weights)
        return y.unflatten(2, x.shape[2:]), log_det


class ReachingConditioner(Conditioner):
    """The networks of `PointwiseConditioner` with convolutions for linear maps, so that they see `reach` positions.

    Kernel sizes and dilations of the three layers are those of `KERNELS`. Convolutions are zero-padded to the same
    length, so that an output sees (reach - 1) / 2 positions to either side, as far as the event goes.
    """

    # Reach -> kernel sizes of the three layers; each is dilated by the product of those before it.
    KERNELS: ClassVar[dict[int, tuple[int, int, int]]] = {3: (1, 3, 1), 9: (3, 3, 1), 27: (3, 3, 3), 81: (3, 9, 3)}

    def __init__(self, kept: int, moved: int, width: int, reach: int, gate: Gate = exponential_gate) -> None:
        super().__init__()
        self.gate = gate
        self.log_scale = self._network((kept, width, width, moved), reach, nn.Tanh)
        self.shift = self._network((kept, width, width, moved), reach, nn.ReLU)

    def forward(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Return log gate(s) and t."""
        return self.gate(self.log_scale(kept)), self.shift(kept)

    @classmethod
    def _network(cls, sizes: Sequence[int], reach: int, activation: type[nn.Module]) -> nn.Sequential:
        layers: list[nn.Module] = []
        dilation = 1
        for inputs, outputs, kernel in zip(sizes, sizes[1:], cls.KERNELS[reach], strict=False):
            convolution = nn.Conv1d(inputs, outputs, kernel, padding=dilation * (kernel // 2), dilation=dilation)
            nn.init.orthogonal_(convolution.weight)
            nn.init.zeros_(convolution.get_parameter("bias"))
            layers += [convolution, activation()]
            dilation *= kernel
        return nn.Sequential(*layers[:-1])


class GaussianConditioner(Conditioner):
    """Standardise the moved channels by a Gaussian that a 3x3 zero convolution computes from the kept ones.

    z = (x - mean) * exp(-log_sigma), which makes z standard normal where x given the kept channels is
    N(mean, exp(log_sigma)^2): Glow's learned prior at a split. |log_sigma| < 5, so that no value of the
    network's output can overflow the scale or its inverse; it takes no gate.
    """

    bound = 5.0

    def __init__(self, kept: int, moved: int, axes: int) -> None:
        super().__init__()
        self.last = ZeroConvolution(axes, kept, 2 * moved)

    def forward(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Return -log_sigma and -mean * exp(-log_sigma)."""
        mean, log_sigma = self.last(kept).chunk(2, dim=1)
        log_scale = -self.bound * torch.tanh(log_sigma / self.bound)
        return log_scale, -mean * log_scale.exp()


class ZeroConvolution(nn.Module):
    """Glow's last convolution: 3x3 with weight and bias initially zero, times exp(3 * logs) per output channel."""

    def __init__(self, axes: int, channels: int, outputs: int) -> None:
        super().__init__()
        self.convolution = _CONVOLUTION[axes](channels, outputs, 3, padding=1)
        nn.init.zeros_(self.convolution.weight)
        nn.init.zeros_(self.convolution.get_parameter("bias"))
        self.logs = nn.Parameter(torch.zeros(outputs, *[1] * axes))

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, channels, *spatial) to (N, outputs, *spatial)."""
        return self.convolution(x) * torch.exp(3 * self.logs)


def _channels_last(x: Tensor) -> Tensor:
    """Return images with the channels last in memory on a CPU, where several are convolved faster so."""
    # Within torch.func's transforms, contiguous() does not support other memory formats.
    if x.ndim == 4 and x.is_cpu and x.shape[0] > 1 and not torch._C._are_functorch_transforms_active():
        return x.contiguous(memory_format=torch.channels_last)
    return x


def weight_norm_convolution(axes: int, channels: int, outputs: int, kernel: int) -> nn.Module:
    """Return a "same" convolution with weight g * v / |v| per output channel, v ~ N(0, 0.05^2), and zero bias."""
    convolution = _CONVOLUTION[axes](channels, outputs, kernel, padding=kernel // 2)
    nn.init.normal_(convolution.weight, std=0.05)
    nn.init.zeros_(convolution.get_parameter("bias"))
    return weight_norm(convolution)


def gain(convolution: nn.Module) -> nn.Parameter:
    """Return the g of a weight-normalised convolution, shape (outputs, 1, ...)."""
    return convolution.get_parameter("parametrizations.weight.original0")


@torch.no_grad()
def standardise(convolution: nn.Module, x: Tensor) -> None:
    """Give every output channel of a weight-normalised convolution zero mean and unit variance on x."""
    mean, scale = standardisation(convolution(x))
    gain(convolution).mul_(scale.view(gain(convolution).shape))
    bias = convolution.get_parameter("bias")
    bias.copy_((bias - mean) * scale)
