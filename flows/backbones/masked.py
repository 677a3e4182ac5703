"""The autoregressive flow of tables: blocks of masked layers, with any linear layer between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import nn

from flows.masked import MaskedBlock
from flows.splines import EntryMap
from flows.tables import TableBackbone

HIDDEN_LAYERS = 2


class Masked(TableBackbone):
    """The backbone of tables whose blocks are masked layers (see `TableBackbone`, `flows.masked`).

    The layer under test mixes or reorders the columns between the blocks; in a block each column depends on those
    before it. The inverse takes D passes for each block, of two hidden layers.

    With the map "affine", as in masked autoregressive flows (Papamakarios et al., NeurIPS 2017); with "spline", as in
    the autoregressive Neural Spline Flows (Durkan et al., NeurIPS 2019). Not as there: only the layer under test
    changes the order of the columns.
    """

    blocks = "masked block{s}"
    capacities: ClassVar[Mapping[str, str]] = {"width": "width of blocks", "steps": "steps"}

    @staticmethod
    def block(dim: int, width: int, entry_map: EntryMap) -> nn.Module:
        """Return a block in the order of the entries."""
        block = MaskedBlock(torch.arange(dim), width, HIDDEN_LAYERS, entry_map)
        for tensor in block.layers[-1].parameters():
            nn.init.zeros_(tensor)
        return block
