"""Real NVP for images (Dinh et al., ICLR 2017): checkerboard and channel couplings in a multi-scale chain."""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flows.actnorm import ActNorm
from flows.conditioners import Conditioner, gain, standardise, weight_norm_convolution
from flows.couplings import MaskedCoupling
from flows.protocol import Flow, Shape, seeded
from flows.shapes import UnsupportedEvent, images_only, level_shapes
from flows.squeeze import Squeeze
from layers.base import check_whole


class ResidualConditioner(Conditioner):
    """3x3 (C -> width), `blocks` of h + 3x3(ReLU(3x3(ReLU(h)))), ReLU, 1x1 (-> 2C): log-scale and shift.

    Every convolution is weight-normalised, and all but the last are initialised to zero mean and unit variance on
    data; the last starts at zero. log-scale = a tanh(s) with one learned a per channel.
    """

    def __init__(self, channels: int, width: int, blocks: int) -> None:
        super().__init__()
        self.first = weight_norm_convolution(2, channels, width, 3)
        self.blocks = nn.ModuleList(weight_norm_convolution(2, width, width, 3) for _ in range(2 * blocks))
        self.last = weight_norm_convolution(2, width, 2 * channels, 1)
        nn.init.zeros_(gain(self.last))
        self.range = nn.Parameter(torch.ones(channels, 1, 1))

    def forward(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Return a tanh(s) and the shift, each (N, C, H, W)."""
        shift, scale = self.last(F.relu(self._hidden(kept, initial=False))).chunk(2, dim=1)
        return self.range * torch.tanh(scale), shift

    @torch.no_grad()
    def initialise(self, kept: Tensor) -> None:
        """Initialise to zero mean and unit variance after each hidden convolution."""
        self._hidden(kept, initial=True)

    def _hidden(self, kept: Tensor, initial: bool) -> Tensor:
        def apply(convolution: nn.Module, value: Tensor) -> Tensor:
            if initial:
                standardise(convolution, value)
            return cast(Tensor, convolution(value))

        hidden = apply(self.first, kept)
        for inner, outer in zip(self.blocks[::2], self.blocks[1::2], strict=True):
            hidden = hidden + apply(outer, F.relu(apply(inner, F.relu(hidden))))
        return hidden


class RealNVP(Flow):
    """Real NVP with weight-normalised residual networks.

    A level: `steps` checkerboard couplings, squeeze, `steps` channel couplings, half of the channels is factored out;
    the last level has steps + 1 checkerboard couplings alone. Masks alternate. In place of the paper's batch
    normalisation between couplings, an ActNorm precedes each, so that a likelihood does not depend on the batch.

    Args:
        shape: (C, H, W).
        levels: number of levels; both spatial axes must be divisible by 2^(levels - 1).
        steps: couplings of one kind in a row (the paper's 3).
        width: hidden channels of the networks (the paper's 64; 32 on ImageNet).
        seed: draws the initial weights.
        blocks: residual blocks of each network (the paper's 8; 4 on ImageNet).

    Raises:
        UnsupportedEvent: not images, sides that these levels do not divide, or a last level of one pixel.
    """

    def __init__(self, shape: Shape, *, levels: int, steps: int, width: int, seed: int = 0, blocks: int = 2) -> None:
        super().__init__()
        images_only("realnvp", shape)
        check_whole("realnvp", "blocks", blocks, 0)
        self.shape, self.dim = tuple(shape), math.prod(shape)
        self.level_shapes: list[Shape] = []
        parts_of_levels: list[list[tuple[str, nn.Module]]] = []
        event = self.shape
        for level in range(levels):
            last = level == levels - 1
            rows, columns = torch.arange(event[1])[:, None], torch.arange(event[2])
            board = ((rows + columns) % 2 == 0).float()[None, None]  # (1, 1, H, W), 1 where row + column is even
            if board.numel() == 1:
                raise UnsupportedEvent(
                    f"realnvp: events {self.shape} with levels = {levels} end in a single pixel, which a "
                    f"checkerboard cannot divide; use at most {levels - 1} levels"
                )
            parts = self._couplings(f"level{level}/checkerboard", event, board, steps + last, width, blocks, seed)
            if not last:
                parts.append((f"level{level}/squeeze", Squeeze(event)))
                event = level_shapes(event, 1)[0]
                mask = (torch.arange(event[0]) < event[0] // 2).float().view(1, -1, 1, 1)  # first half of the channels
                parts += self._couplings(f"level{level}/channels", event, mask, steps, width, blocks, seed)
            self.level_shapes.append(event)
            parts_of_levels.append(parts)
            event = (event[0] // 2, *event[1:])
        self.set_levels(parts_of_levels)

    def _couplings(
        self, path: str, event: Shape, mask: Tensor, number: int, width: int, blocks: int, seed: int
    ) -> list[tuple[str, nn.Module]]:
        """Return ActNorm -> coupling, `number` times, under the mask and its complement in turn."""
        parts: list[tuple[str, nn.Module]] = []
        for index in range(number):
            with seeded(seed, f"{path}{index}/coupling"):
                net = ResidualConditioner(event[0], width, blocks)
            coupling = MaskedCoupling(mask if index % 2 == 0 else 1 - mask, net)
            parts += [(f"{path}{index}/actnorm", ActNorm(event[0])), (f"{path}{index}/coupling", coupling)]
        return parts
