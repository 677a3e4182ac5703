"""Steps, event shapes and captions that the backbones of tables share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from flows.actnorm import ActNorm
from flows.backbone import MakeLayer
from flows.permutation import Permutation
from flows.protocol import Shape, seeded
from flows.shapes import UnsupportedEvent


def whole_event(shape: Shape) -> list[Shape]:
    """Return the shape, as the only one that layers meet; raise UnsupportedEvent for an event of one entry."""
    if math.prod(shape) < 2:
        raise UnsupportedEvent(f"event shape {tuple(shape)}: one entry has no other to depend on; use two or more")
    return [tuple(shape)]


def make_steps(
    shape: Shape,
    make_layer: MakeLayer,
    make_mixer: MakeLayer | None,
    make_block: Callable[[], nn.Module],
    steps: int,
    seed: int,
    order: Tensor | None,
) -> list[tuple[str, nn.Module]]:
    """Return, `steps` times, ActNorm, the mixer if there is one, the layer under test, and a block.

    Each module is drawn under its path. The permutation `order` comes first, if there is one.

    Raises:
        ValueError: no step.
    """
    if steps < 1:
        raise ValueError(f"steps = {steps}: the backbone needs at least 1 step")
    parts: list[tuple[str, nn.Module]] = [] if order is None else [("permutation", Permutation(shape, order))]
    makers = {"mixer": make_mixer, "layer": make_layer, "block": lambda _: make_block()}
    for step in range(steps):
        parts.append((f"step{step}/actnorm", ActNorm(shape[0])))
        for name, make in makers.items():
            if make is not None:
                with seeded(seed, f"step{step}/{name}"):
                    parts.append((f"step{step}/{name}", make(shape)))
    return parts


def described_blocks(settings: Any) -> str:
    """Return the width of the blocks and their map of single entries."""
    maps, bounds = "affine maps", "scales bounded to (0.5, 1.5)"
    if settings.map == "spline":
        maps, bounds = f"splines of {settings.bins} bins", "slopes at knots bounded to [0.1, 10]"
    return f"of width {settings.width}, {maps}" + f", {bounds}" * (settings.gate == "bounded")


def permutation_alone(layer: str, options: Mapping[str, Any]) -> str | None:
    """Return the description of the control of tables, a random permutation; None for any other row."""
    alone = layer == "fixed" and options.get("map", "permutation") == "permutation"
    return "a random permutation alone" if alone else None
