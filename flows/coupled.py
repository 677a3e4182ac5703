"""A coupling as one operation, for networks that compiled operators compute.

`invertbench::coupling` is the network, the gate, scale and shift, and the log-determinant in one call, forward and
backward: calls take longest in the steps of small flows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

import torch
from torch import Tensor
from torch.library import Library

from flows import convolutions, perceptron
from flows.affine import COMPILED, Gate, affine_coupling

Coupled = tuple[Tensor, Tensor]
NetworkName = Literal["convolutions", "perceptrons"]

PLAIN: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "convolutions": convolutions.s_and_shift,
    "perceptrons": perceptron.s_and_shift,
}
SERVES: dict[str, Callable[..., bool]] = {
    "convolutions": convolutions.kernel_serves,
    "perceptrons": perceptron.kernel_serves,
}


def couple(network: NetworkName, x: Tensor, kept: int, gate: Gate, weights: Sequence[Tensor]) -> Coupled:
    """Scale and shift channels by a network of the first `kept`, which are unchanged.

    Args:
        network: the name of the network.
        x: (N, channels, *spatial).
        kept: number of unchanged channels.
        gate: from the network's s to the log-scale.
        weights: of the network, in its order.

    Returns:
        y as x, and log|det| of shape (N,).
    """
    if gate not in COMPILED or not SERVES[network](x, *weights):
        return _plain(network, x, kept, gate, weights)
    _define_plain_coupling()
    y, log_det = torch.ops.invertbench.coupling(x, weights, kept, COMPILED.index(gate), network)
    return y, log_det


def _plain(network: str, x: Tensor, kept: int, gate: Gate, weights: Sequence[Tensor]) -> Coupled:
    """Compute the same in PyTorch."""
    unchanged, moved = x.split([kept, x.shape[1] - kept], dim=1)
    s, shift = PLAIN[network](unchanged, *weights)
    return affine_coupling(unchanged, moved, gate(s), shift)


@cache
def _define_plain_coupling() -> Library:
    """Let the compiled operator call `_plain`, whose graph gives derivatives of its gradients."""

    def plain_coupling(x: Tensor, weights: Sequence[Tensor], kept: int, gate: int, network: str) -> Coupled:
        return _plain(network, x, kept, COMPILED[gate], weights)

    library = Library("invertbench", "IMPL")
    library.impl("plain_coupling", plain_coupling, "CompositeImplicitAutograd")
    return library
