"""The coupling flow of tables: couplings over the columns, affine or by splines, with any linear layer between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flows.splines import EntryMap
from flows.tables import TableBackbone
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


class Columns(TableBackbone):
    """The backbone of tables whose blocks are couplings over the columns (see `TableBackbone`, `ColumnCoupling`).

    With the map "spline", as in Neural Spline Flows (Durkan et al., NeurIPS 2019); with "affine", as in Real NVP
    (Dinh et al. 2017). Not as there: the unchanged half is always the first one, so that a layer that does not move
    columns leaves it unchanged.
    """

    blocks = "coupling{s} over columns"
    capacities: ClassVar[Mapping[str, str]] = {"width": "width of networks", "steps": "steps"}
    block = staticmethod(ColumnCoupling)
