"""The autoregressive flow of tables: blocks of masked layers, with any linear layer between them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from flows.affine import GateName
from flows.backbone import Backbone, MakeLayer
from flows.masked import MaskedBlock
from flows.protocol import Shape
from flows.splines import EntryMap, MapName, make_map
from flows.tables import described_blocks, make_steps, permutation_alone, whole_event

HIDDEN_LAYERS = 2


def _block(dim: int, width: int, entry_map: EntryMap) -> MaskedBlock:
    """Return a block in the order of the entries, initially the identity."""
    block = MaskedBlock(torch.arange(dim), width, HIDDEN_LAYERS, entry_map)
    for tensor in block.layers[-1].parameters():
        nn.init.zeros_(tensor)
    return block


class Masked(Backbone):
    """x -> z: `steps` times ActNorm, the layer under test, and a block of masked layers (see `flows.masked`).

    For rows of a table, vectors (D, 1), whose columns the layer mixes or reorders between the blocks; in a block each
    column depends on those before it. Other events are taken as vectors of all their entries, in memory order. Nothing
    is squeezed or factored out. log p(x) = log N(z; 0, I) + log|det dz/dx|. The inverse takes D passes for each block.

    With the map "affine", as in masked autoregressive flows (Papamakarios et al., NeurIPS 2017); with "spline", as in
    the autoregressive Neural Spline Flows (Durkan et al., NeurIPS 2019). Not as there: an ActNorm takes the place of
    batch normalisation, and only the layer under test changes the order of the columns.

    Args:
        shape: event shape (D, 1), or any other of at least two entries.
        make_layer, make_mixer, seed, order: as for `flows.backbones.glow.Glow`.
        steps: blocks, and as many layers under test.
        width: of the two hidden layers of each block.
        map, gate, bins: as for `flows.backbones.columns.Columns`.

    Raises:
        UnsupportedEvent: an event of one entry.
        ValueError: an unknown map or gate, no step, no width, or a number of bins that no spline has.
        Exceptions of make_layer and make_mixer propagate unchanged.
    """

    splits = False
    mixed: ClassVar[bool] = False
    capacities: ClassVar[Mapping[str, str]] = {"width": "width of blocks", "steps": "steps"}

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
        self.shape, self.dim = tuple(shape), math.prod(shape)
        self.level_shapes = whole_event(self.shape)
        block = partial(_block, self.dim, width, make_map(map, gate, bins))
        self.set_levels([make_steps(self.shape, make_layer, make_mixer, block, steps, seed, order)])

    @classmethod
    def layer_shapes(cls, shape: Shape, levels: int) -> list[Shape]:
        """Return the shape itself; there are no levels."""
        return whole_event(shape)

    @classmethod
    def described(cls, settings: Any) -> str:
        """Return the number of masked blocks, their width and their map."""
        return f"{settings.steps} masked block{'s' * (settings.steps != 1)} {described_blocks(settings)}"

    @classmethod
    def control(cls, layer: str, options: Mapping[str, Any], keep_mixer: bool) -> str | None:
        """Return that a row is a random permutation alone."""
        return permutation_alone(layer, options)
