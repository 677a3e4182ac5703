"""The part that the backbones of tables share: steps of ActNorm, the layer under test and a block over the columns."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from flows.actnorm import ActNorm
from flows.affine import GateName
from flows.backbone import Backbone, MakeLayer
from flows.permutation import Permutation
from flows.protocol import Shape, drawn
from flows.shapes import level_shapes
from flows.splines import EntryMap, MapName, make_map
from layers.base import check_whole


class TableBackbone(Backbone):
    """x -> z: `steps` times ActNorm, the mixer if there is one, the layer under test, and a block of the subclass.

    For rows of a table, vectors (D, 1), of which each column is a channel. Other events are taken as vectors of all
    their entries, in memory order, with an ActNorm for each channel. Nothing is squeezed or factored out.
    log p(x) = log N(z; 0, I) + log|det dz/dx|. An ActNorm takes the place of the published batch normalisation.

    Args:
        shape: event shape (D, 1), or any other of at least two entries.
        make_layer, make_mixer, seed, order: as for `flows.backbones.glow.Glow`.
        steps: blocks, and as many layers under test.
        width: of the blocks' networks.
        map: of an entry: "affine", or "spline" (see `flows.splines`).
        gate: scales or slopes of the map, as published or bounded (see `flows.splines.make_map`).
        bins: of a spline.

    Raises:
        UnsupportedEvent: an event of one entry.
        ValueError: an unknown map or gate, no step, no width, or a number of bins that no spline has.
        Exceptions of make_layer and make_mixer propagate unchanged.
    """

    splits = False
    mixed: ClassVar[bool] = False
    blocks: ClassVar[str]  # the name of one block in captions

    def __init__(
        self,
        shape: Shape,
        make_layer: MakeLayer,
        make_mixer: MakeLayer | None = None,
        *,
        steps: int,
        width: int,
        map: MapName = "spline",
        gate: GateName = "published",
        bins: int = 8,
        seed: int = 0,
        order: Tensor | None = None,
    ) -> None:
        super().__init__()
        check_whole("flow", "steps", steps)
        self.shape, self.dim = tuple(shape), math.prod(shape)
        self.level_shapes = self.layer_shapes(self.shape, 1)
        entry_map = make_map(map, gate, bins)
        makers = {
            "actnorm": partial(ActNorm, shape[0]),
            "mixer": make_mixer and partial(make_mixer, self.shape),
            "layer": partial(make_layer, self.shape),
            "block": partial(self.block, self.dim, width, entry_map),
        }
        parts: list[tuple[str, nn.Module]] = [] if order is None else [("permutation", Permutation(shape, order))]
        for step in range(steps):
            parts += drawn(seed, f"step{step}", **makers).items()
        self.set_levels([parts])

    @staticmethod
    @abstractmethod
    def block(dim: int, width: int, entry_map: EntryMap) -> nn.Module:
        """Return a block over the D entries, which is initially the identity."""

    @classmethod
    def layer_shapes(cls, shape: Shape, levels: int) -> list[Shape]:
        """Return the shape itself; there are no levels."""
        level_shapes((math.prod(shape), 1), 1)  # refuses one entry
        return [tuple(shape)]

    @classmethod
    def described(cls, settings: Any) -> str:
        """Return the number of blocks, their width and their map of single entries."""
        maps, bounds = "affine maps", "scales bounded to (0.5, 1.5)"
        if settings.map == "spline":
            maps, bounds = f"splines of {settings.bins} bins", "slopes at knots bounded to [0.1, 10]"
        blocks = (
            f"{settings.steps} {cls.blocks.format(s='s' * (settings.steps != 1))} of width {settings.width}, {maps}"
        )
        return blocks + f", {bounds}" * (settings.gate == "bounded")

    @classmethod
    def control(cls, layer: str, options: Mapping[str, Any], keep_mixer: bool) -> str | None:
        """Return that a row is a random permutation alone."""
        alone = layer == "fixed" and options.get("map", "permutation") == "permutation"
        return "a random permutation alone" if alone else None
