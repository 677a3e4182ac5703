"""The structure shared by the residual baselines: squeezes, and at each level blocks after an ActNorm each."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import nn

from flows.actnorm import ActNorm
from flows.protocol import Flow, Shape
from flows.seeding import seeded
from flows.shapes import UnsupportedEvent, level_shapes
from flows.squeeze import Squeeze

MakeBlock = Callable[[Shape, int], nn.Module]
"""Function (event shape, number of the block in the flow) -> the block."""


def images_only(name: str, shape: Shape) -> None:
    """Raise UnsupportedEvent unless the events are images (C, H, W)."""
    if len(shape) != 3:
        raise UnsupportedEvent(f"{name}: events {shape} are not images (channels, height, width), which it is made for")


class ResidualLevels(Flow):
    """Squeeze -> steps of (ActNorm -> block), `levels` times; nothing is factored out between levels.

    Args:
        name: name of the flow, for messages.
        shape, levels, steps, seed: see the flows.
        make_block: function that makes a block; each is made with its own stream of random numbers.

    Raises:
        UnsupportedEvent: not images, or sides that these levels do not divide.
    """

    splits = False

    def __init__(self, name: str, shape: Shape, levels: int, steps: int, seed: int, make_block: MakeBlock) -> None:
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
