"""The released code of ButterflyFlow in plain, eager PyTorch: the yardstick of the butterfly and of training steps.

It is written anew, with the operations of that code (alexzhou907/butterflyflow), and takes the weights of a flow of
ours. Details:

- Sequences stay in (N, T, C) throughout, so that the couplings' linear layers read them without a transposition.
- Weight normalisation is torch's; an image coupling scales by sigmoid(s + 2), whose logs it sums.
- A 1x1 convolution is a conv2d of images, a product with W^T of sequences; log|det W| is by slogdet unless it is PLU.
- Adam updates one tensor after the other, as torch did by default on a CPU, without fused or foreach kernels.
- An event's channels after a squeeze are in our order, ActNorm scales x + b; both cost the same in the released order.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flows import Glow
from flows.actnorm import ActNorm
from flows.conditioners import PointwiseConditioner, WeightNormConditioner
from flows.couplings import AffineCoupling
from flows.squeeze import Squeeze
from layers.butterfly import Butterfly
from layers.conv1x1 import Conv1x1


class EagerButterfly(nn.Module):
    """The factors one by one: per level, x is viewed as (N, B, 2, h, 1) and y = (x * W[None]).sum(2), (N, B, h, 2).

    The weights of a level are (B, 2 in, h, 2 out), with h = 1 if its pairs share them, and the outputs of a pair, last
    in y, are moved before h again; its log-det is the sum of log|ad - bc|. The inverse inverts every 2x2 matrix in
    closed form. Entries are in the order of the event.
    """

    def __init__(self, layer: Butterfly) -> None:
        super().__init__()
        pieces = zip(layer.weight.detach().split(layer.plan.lengths, 2), layer.plan.factors, strict=True)
        self.halves = [half for _, half in layer.plan.factors]
        self.weights = nn.ParameterList(
            piece.unflatten(2, (blocks, -1)).permute(2, 1, 3, 0).contiguous() for piece, (blocks, _) in pieces
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, log_det = x, x.new_zeros(())
        for weight, half in zip(self.weights, self.halves, strict=True):
            y = self._product(weight, half, y)
            (a, c), (b, d) = weight.permute(1, 3, 0, 2)
            log_det = log_det + (a * d - b * c).abs().log().sum() * (half // weight.shape[2])
        return y.reshape(x.shape), log_det

    def inverse(self, y: Tensor) -> Tensor:
        x = y
        for weight, half in zip(reversed(self.weights), reversed(self.halves), strict=True):
            (a, c), (b, d) = weight.permute(1, 3, 0, 2)
            adjugate = torch.stack((torch.stack((d, -c), 2), torch.stack((-b, a), 2)), 1)
            x = self._product(adjugate / (a * d - b * c)[:, None, :, None], half, x)
        return x.reshape(y.shape)

    @staticmethod
    def _product(weight: Tensor, half: int, x: Tensor) -> Tensor:
        pairs = x.flatten(1).view(len(x), len(weight), 2, half, 1)  # without flatten: 1.5 times as long
        return (pairs * weight[None]).sum(2).permute(0, 1, 3, 2)


def joined(weights: list[Tensor]) -> Tensor:
    """Return levels of an EagerButterfly, or their gradients, as our layer holds them: (2, 2, P)."""
    return torch.cat([weight.permute(3, 1, 0, 2).flatten(2) for weight in weights], 2)


class Plain(nn.Module):
    """A part of a flow in plain PyTorch, with a copy of our module for its weights; sequences are (N, T, C)."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.ours = copy.deepcopy(module)


class PlainActNorm(Plain):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        channels = (-1, 1, 1) if x.ndim == 4 else (-1,)
        y = (x + self.ours.shift.view(channels)) * self.ours.log_scale.exp().view(channels)
        return y, self.ours.log_scale.sum() * (x[0].numel() // len(self.ours.shift))


class PlainSqueeze(Plain):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if x.ndim == 3:
            return x.reshape(len(x), x.shape[1] // 2, -1), x.new_zeros(())
        pairs = x.unflatten(3, (-1, 2)).unflatten(2, (-1, 2))  # (N, C, H / 2, 2, W / 2, 2)
        return pairs.permute(0, 1, 3, 5, 2, 4).flatten(1, 3), x.new_zeros(())


class PlainConv1x1(Plain):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        ours = self.ours
        if ours.parameterisation == "dense":
            weight, log_det = ours.weight, torch.slogdet(ours.weight).logabsdet
        else:
            identity = torch.eye(ours.channels, dtype=x.dtype)
            lower = ours.lower * ours.lower_mask + identity
            upper = ours.upper * ours.upper_mask + torch.diag(ours.sign * ours.log_s.exp())
            weight, log_det = identity[ours.permutation] @ lower @ upper, ours.log_s.sum()
        y = F.conv2d(x, weight[:, :, None, None]) if x.ndim == 4 else x @ weight.T
        return y, log_det * ours.positions


class PlainImageCoupling(Plain):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        net = self.ours.net
        kept, moved = x[:, : self.ours.kept], x[:, self.ours.kept :]
        first = F.elu(net.first(kept), inplace=True)
        shift, s = net.last(F.elu(net.second(first), inplace=True)).chunk(2, 1)
        scale = torch.sigmoid(s + 2)
        return torch.cat((kept, moved * scale + shift), 1), scale.log().flatten(1).sum(1)


class PlainSequenceCoupling(Plain):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        net = self.ours.net
        kept, moved = x[..., : self.ours.kept], x[..., self.ours.kept :]
        log_scale, shift = (nn.Sequential.forward(each, kept) for each in (net.log_scale, net.shift))
        return torch.cat((kept, moved * log_scale.exp() + shift), 2), log_scale.flatten(1).sum(1)


class ReleasedFlow(nn.Module):
    """The flow of the released code with the weights of a Glow of ours."""

    def __init__(self, flow: Glow) -> None:
        super().__init__()
        self.dim = flow.dim
        self.levels = nn.ModuleList(nn.ModuleList(_plain(module) for _, module in level) for level in flow.parts())

    def log_prob(self, x: Tensor) -> Tensor:
        hidden = x.transpose(1, 2).contiguous() if x.ndim == 3 else x
        total = x.new_full((len(x),), -0.5 * self.dim * math.log(2 * math.pi))
        for number, level in enumerate(self.levels, start=1):
            for module in level:
                hidden, log_det = module(hidden)
                total = total + log_det
            if number < len(self.levels):
                hidden, left = hidden.chunk(2, 2 if x.ndim == 3 else 1)
                total = total - 0.5 * left.square().flatten(1).sum(1)
        return total - 0.5 * hidden.square().flatten(1).sum(1)


def _plain(module: nn.Module) -> nn.Module:
    """Return the same part of the released flow."""
    match module:
        case Butterfly():
            return EagerButterfly(module)
        case AffineCoupling(net=WeightNormConditioner()):
            return PlainImageCoupling(module)
        case AffineCoupling(net=PointwiseConditioner()):
            return PlainSequenceCoupling(module)
        case ActNorm():
            return PlainActNorm(module)
        case Squeeze():
            return PlainSqueeze(module)
        case Conv1x1():
            return PlainConv1x1(module)
    raise TypeError(f"the released code has no {type(module).__name__}; use its layers, couplings and squeezes alone")


def training_step(flow: ReleasedFlow, x: Tensor, learning_rate: float = 1e-3) -> Callable[[], Tensor]:
    """Return a function that takes one step of training on a batch, and returns its loss in nats per dimension."""
    optimiser = torch.optim.Adam(flow.parameters(), lr=learning_rate, fused=False, foreach=False)

    def step() -> Tensor:
        optimiser.zero_grad()
        loss = -flow.log_prob(x).mean() / flow.dim
        loss.backward()
        optimiser.step()
        return loss.detach()

    return step
