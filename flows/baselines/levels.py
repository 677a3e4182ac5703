"""The assembly that the residual rows share: squeezes, and at each level blocks behind an ActNorm."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from torch import nn

from flows.actnorm import ActNorm
from flows.protocol import Part, Shape
from flows.seeding import seeded
from flows.shapes import UnsupportedEvent, level_shapes
from flows.squeeze import Squeeze

MakeBlock = Callable[[Shape, int], nn.Module]
"""(event shape, number of the block in the flow) -> the block."""


def images_only(name: str, shape: Shape) -> None:
    """Raise UnsupportedEvent unless the events are images (C, H, W)."""
    if len(shape) != 3:
        raise UnsupportedEvent(f"{name}: events {shape} are no images (channels, height, width), which it is made for")


def residual_levels(
    shape: Shape, levels: int, steps: int, seed: int, make_block: MakeBlock
) -> tuple[list[Shape], nn.ModuleList]:
    """Squeeze -> steps of (ActNorm -> block), `levels` times; nothing leaves between levels.

    Returns:
        The event shape at the end of each level, and the modules, per level one list.
    """
    shapes, event = [], shape
    built = nn.ModuleList()
    for level in range(levels):
        modules: list[nn.Module] = [Squeeze(event)]
        event = level_shapes(event, 1)[0]
        shapes.append(event)
        for step in range(steps):
            with seeded(seed, f"level{level}/step{step}/block"):
                modules += [ActNorm(event[0]), make_block(event, level * steps + step)]
        built.append(nn.ModuleList(modules))
    return shapes, built


def residual_parts(levels: nn.ModuleList) -> list[list[Part]]:
    """(path, bijection) per level of what `residual_levels` built."""
    found = []
    for number, level in enumerate(levels):
        squeeze, *rest = cast(nn.ModuleList, level)
        parts = [(f"level{number}/squeeze", squeeze)]
        for index, module in enumerate(rest):
            parts.append((f"level{number}/step{index // 2}/{('actnorm', 'block')[index % 2]}", module))
        found.append(parts)
    return cast(list[list[Part]], found)
