"""Masked autoregressive flow (Papamakarios et al., NeurIPS 2017), by zuko, on flattened events."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flows.actnorm import ActNorm
from flows.baselines import MissingLibrary
from flows.bijection import Dense
from flows.protocol import Flow, Part, Shape, seeded
from layers.linalg.precision import full_precision


class Flatten(nn.Module):
    """(N, *shape) -> (N, D), entries in memory order; log|det| = 0."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the flat event, and 0 of shape ()."""
        return x.flatten(1), x.new_zeros(())

    def inverse(self, y: Tensor) -> Tensor:
        """Map (N, D) to (N, *shape)."""
        return y.reshape(-1, *self.shape)


class MaskedAutoregressive(Dense):
    """y_i = x_i exp(a_i) + b_i with a_i, b_i functions of the entries before x_i, by zuko's masked layers.

    log|det| = sum of a_i; zuko bounds a_i to +-log 1000. There are two differences from zuko's network:

    - Its hidden units see the first 1, 2, ... entries, as many as there are units: with fewer units than entries, the
      later entries would have no influence. Here the reach of the units is spread evenly up to D - 1 (as in MADE, on
      average).
    - Its inverse runs the whole network D times. Here the sums of the first hidden layer are updated, and the last
      layer is evaluated for one entry at a time: the same values from D small products.

    Args:
        order: rank of each entry, a permutation of 0..D-1; an entry depends on those of lower rank.
        width: units of each hidden layer.
        hidden_layers: number of hidden layers.

    Raises:
        MissingLibrary: zuko is not installed.
    """

    order: Tensor

    def __init__(self, order: Tensor, width: int, hidden_layers: int) -> None:
        super().__init__()
        try:
            from zuko.nn import MaskedLinear
            from zuko.transforms import MonotonicAffineTransform
        except ImportError as error:
            raise MissingLibrary(
                f"maf is built with zuko, which is missing ({error}): `pip install -e '.[baselines]'` installs it"
            ) from error
        self._affine: Any = MonotonicAffineTransform
        self.register_buffer("order", order)
        # A unit sees the entries of rank below its reach; the last sees all but the last entry.
        reach = -(-torch.arange(1, width + 1) * (len(order) - 1) // width)
        masks = [reach[:, None] > order]
        masks += [reach[:, None] >= reach] * (hidden_layers - 1)
        masks.append((order[:, None] >= reach).repeat_interleave(2, dim=0))
        self.layers = nn.ModuleList(MaskedLinear(mask) for mask in masks)
        for layer in self.layers:
            # A separate buffer, under the name by which masked entries are counted: a shared one would be listed once.
            layer.register_buffer("weight_mask", layer.get_buffer("mask").clone(), persistent=False)

    @full_precision
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map (N, D) to (N, D); return y and log|det| of shape (N,)."""
        transform = self._affine(*self._shift_and_scale(x))
        y, log_scale = transform.call_and_ladj(x)
        return y, log_scale.sum(1)

    @full_precision
    def inverse(self, y: Tensor) -> Tensor:
        """Return x, computed entry by entry in the order of the ranks."""
        first, *hidden, last = (cast(Any, layer) for layer in self.layers)
        columns = (first.weight * first.mask).T.contiguous()
        matrices = [(layer.bias, (layer.weight * layer.mask).T) for layer in hidden]
        rows = (last.weight * last.mask).view(len(self.order), 2, -1)
        x, sums = torch.zeros_like(y), first.bias.expand(len(y), -1)
        for index in self.order.argsort().tolist():
            value = F.relu(sums)
            for bias, matrix in matrices:
                value = F.relu(torch.addmm(bias, value, matrix))
            shift, scale = torch.addmm(last.bias.view(-1, 2)[index], value, rows[index].T).unbind(1)
            x[:, index] = self._affine(shift, scale).inv(y[:, index])
            sums = torch.addcmul(sums, x[:, index, None], columns[index])
        return x

    def _shift_and_scale(self, x: Tensor) -> tuple[Tensor, Tensor]:
        *hidden, last = self.layers
        for layer in hidden:
            x = F.relu(layer(x))
        shift, scale = last(x).unflatten(1, (-1, 2)).unbind(2)
        return shift, scale


class MAF(Flow):
    """MAF on flattened events: `steps` autoregressive maps by zuko, in alternating order of the entries.

    The paper uses batch normalisation between maps, which zuko does not offer: an ActNorm of one scale and shift per
    entry precedes each, initialised on the first batch and then trained. `levels` has no meaning here.

    Args:
        shape: of the events, any.
        levels: ignored; there are no levels.
        steps: autoregressive maps (the paper's 5 or 10).
        width: units of each hidden layer (the paper's 1024).
        seed: draws the initial weights.
        hidden_layers: number of hidden layers of each map's network.

    Raises:
        MissingLibrary: zuko is not installed.
    """

    def __init__(
        self, shape: Shape, *, levels: int, steps: int, width: int, seed: int = 0, hidden_layers: int = 1
    ) -> None:
        super().__init__()
        if hidden_layers < 1:
            raise ValueError(f"maf: hidden_layers = {hidden_layers}; it must be at least 1")
        self.shape, self.dim = tuple(shape), math.prod(shape)
        self.level_shapes = [(self.dim,)]
        self.flatten = Flatten(self.shape)
        self.norms = nn.ModuleList()
        self.maps = nn.ModuleList()
        for step in range(steps):
            order = torch.arange(self.dim)
            with seeded(seed, f"step{step}/autoregressive"):
                self.maps.append(MaskedAutoregressive(order.flip(0) if step % 2 else order, width, hidden_layers))
            self.norms.append(ActNorm(self.dim))

    def parts(self) -> list[list[Part]]:
        """Return one level: flatten, then ActNorm and map in turn."""
        parts: list[tuple[str, nn.Module]] = [("flatten", self.flatten)]
        for step, (norm, transform) in enumerate(zip(self.norms, self.maps, strict=True)):
            parts += [(f"step{step}/actnorm", norm), (f"step{step}/autoregressive", transform)]
        return [cast(list[Part], parts)]
