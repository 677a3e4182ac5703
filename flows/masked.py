"""A block of masked layers (MADE, Germain et al. 2015): each entry is mapped given the entries before it."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flows.protocol import Dense
from flows.splines import EntryMap
from layers.linalg.precision import full_precision


class MaskedLinear(nn.Linear):
    """A linear map of which only the weights under a mask (outputs, inputs) are used."""

    weight_mask: Tensor  # under the name by which masked entries are counted (`layers.free_parameters`)

    def __init__(self, mask: Tensor) -> None:
        outputs, inputs = mask.shape
        super().__init__(inputs, outputs)
        self.register_buffer("weight_mask", mask, persistent=False)

    def masked(self) -> Tensor:
        """Return the weights that are used, and zeros."""
        return self.weight * self.weight_mask

    def forward(self, input: Tensor) -> Tensor:
        """Map (N, inputs) to (N, outputs)."""
        return F.linear(input, self.masked(), self.bias)


class MaskedBlock(Dense):
    """y_i = f(x_i) with f a map of single entries, whose raw numbers depend on the entries before x_i.

    log|det| = the sum of the log-slopes. The reach of the hidden units is spread evenly up to D - 1 (as in MADE, on
    average), so that each entry has an influence on later ones also where there are fewer units than entries.

    The inverse computes one entry after the other. It updates the sums of the first hidden layer, and evaluates the
    last layer for one entry at a time.

    Args:
        order: rank of each entry, a permutation of 0..D-1; an entry depends on those of lower rank.
        width: units of each hidden layer.
        hidden_layers: number of hidden layers.
        entry_map: f.
    """

    order: Tensor

    def __init__(self, order: Tensor, width: int, hidden_layers: int, entry_map: EntryMap) -> None:
        super().__init__()
        self.map = entry_map
        self.register_buffer("order", order)
        # A unit sees the entries of rank below its reach; the last sees all but the last entry.
        reach = -(-torch.arange(1, width + 1) * (len(order) - 1) // width)
        masks = [reach[:, None] > order]
        masks += [reach[:, None] >= reach] * (hidden_layers - 1)
        masks.append((order[:, None] >= reach).repeat_interleave(entry_map.size, dim=0))
        self.layers = nn.ModuleList(MaskedLinear(mask) for mask in masks)

    @full_precision
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map (N, *shape) of D entries to the same shape; return y and log|det| of shape (N,)."""
        y, log_slope = self.map.forward(x.flatten(1), self.raw(x))
        return y.reshape(x.shape), log_slope.sum(1)

    @full_precision
    def inverse(self, y: Tensor) -> Tensor:
        """Return x, computed entry by entry in the order of the ranks."""
        first, *hidden, last = cast("list[MaskedLinear]", list(self.layers))
        columns = first.masked().T.contiguous()
        matrices = [(layer.bias, layer.masked().T) for layer in hidden]
        rows = last.masked().unflatten(0, (-1, self.map.size))
        biases, flat = last.bias.unflatten(0, (-1, self.map.size)), y.flatten(1)
        x, sums = torch.zeros_like(flat), first.bias.expand(len(y), -1)
        for index in self.order.argsort().tolist():
            value = F.relu(sums)
            for bias, matrix in matrices:
                value = F.relu(torch.addmm(bias, value, matrix))
            raw = torch.addmm(biases[index], value, rows[index].T)
            x[:, index] = self.map.inverse(flat[:, index], raw)
            sums = torch.addcmul(sums, x[:, index, None], columns[index])
        return x.reshape(y.shape)

    def raw(self, x: Tensor) -> Tensor:
        """Return the raw numbers of each entry, (N, D, size)."""
        *hidden, last = self.layers
        value = x.flatten(1)
        for layer in hidden:
            value = F.relu(layer(value))
        return cast(Tensor, last(value)).unflatten(1, (-1, self.map.size))
