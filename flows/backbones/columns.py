"""The coupling flow of tables: couplings over the columns, affine or by splines, with any linear layer between them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flows.affine import GateName
from flows.backbone import Backbone, MakeLayer
from flows.protocol import Shape
from flows.splines import EntryMap, MapName, make_map
from flows.tables import described_blocks, make_steps, permutation_alone, whole_event
from layers.linalg.precision import full_precision


class ResidualNetwork(nn.Module):
    """Linear, two blocks h + linear(ReLU(linear(ReLU(h)))), linear with weights and biases initially zero.

    That of nflows' coupling flows, without dropout and batch normalisation.
    """

    def __init__(self, inputs: int, outputs: int, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(nn.Sequential(*(nn.Linear(width, width) for _ in range(2))) for _ in range(2))
        self.last = nn.Linear(width, outputs)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, inputs) to (N, outputs)."""
        hidden = self.first(x)
        for block in self.blocks:
            inner, outer = cast(nn.Sequential, block)
            hidden = hidden + outer(F.relu(inner(F.relu(hidden))))
        return cast(Tensor, self.last(hidden))


class ColumnCoupling(nn.Module):
    """The first half of the entries is unchanged; each of the others is mapped, given the first half.

    log|det| = the sum of the log-slopes. The inverse computes the same network. With an odd number of entries, the
    unchanged part is the larger one.

    Args:
        dim: number of entries, at least 2.
        width: of the network.
        entry_map: of an entry, by raw numbers that the network computes.
    """

    def __init__(self, dim: int, width: int, entry_map: EntryMap) -> None:
        super().__init__()
        self.map = entry_map
        self.kept = dim - dim // 2
        self.net = ResidualNetwork(self.kept, dim // 2 * entry_map.size, width)

    @full_precision
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map (N, *shape) to the same shape; return y and log|det| of shape (N,)."""
        kept, moved, raw = self._parts(x)
        y, log_slope = self.map.forward(moved, raw)
        return torch.cat([kept, y], dim=1).reshape(x.shape), log_slope.sum(1)

    @full_precision
    def inverse(self, y: Tensor) -> Tensor:
        """Return x."""
        kept, moved, raw = self._parts(y)
        return torch.cat([kept, self.map.inverse(moved, raw)], dim=1).reshape(y.shape)

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the unchanged and the other entries, (N, kept) and (N, moved), and raw numbers, (N, moved, size)."""
        flat = x.flatten(1)
        kept = flat[:, : self.kept]
        return kept, flat[:, self.kept :], self.net(kept).unflatten(1, (-1, self.map.size))


class Columns(Backbone):
    """x -> z: `steps` times ActNorm, the layer under test, and a coupling over the columns (see `ColumnCoupling`).

    For rows of a table, vectors (D, 1), of which each column is a channel. Other events are coupled as vectors of all
    their entries, with an ActNorm for each channel. Nothing is squeezed or factored out.
    log p(x) = log N(z; 0, I) + log|det dz/dx|.

    With the map "spline", as in Neural Spline Flows (Durkan et al., NeurIPS 2019); with "affine", as in Real NVP
    (Dinh et al. 2017). Not as there: the unchanged half is always the first one, so that a layer that does not move
    columns leaves it unchanged; an ActNorm takes the place of batch normalisation.

    Args:
        shape: event shape (D, 1), or any other of at least two entries.
        make_layer, make_mixer, seed, order: as for `flows.backbones.glow.Glow`.
        steps: couplings, and as many layers under test.
        width: of the networks.
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
    capacities: ClassVar[Mapping[str, str]] = {"width": "width of networks", "steps": "steps"}

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
        coupling = partial(ColumnCoupling, self.dim, width, make_map(map, gate, bins))
        self.set_levels([make_steps(self.shape, make_layer, make_mixer, coupling, steps, seed, order)])

    @classmethod
    def layer_shapes(cls, shape: Shape, levels: int) -> list[Shape]:
        """Return the shape itself; there are no levels."""
        return whole_event(shape)

    @classmethod
    def described(cls, settings: Any) -> str:
        """Return the number of couplings over columns, their width and their map."""
        return f"{settings.steps} coupling{'s' * (settings.steps != 1)} over columns {described_blocks(settings)}"

    @classmethod
    def control(cls, layer: str, options: Mapping[str, Any], keep_mixer: bool) -> str | None:
        """Return that a row is a random permutation alone."""
        return permutation_alone(layer, options)
