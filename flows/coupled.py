"""The networks of couplings that compiled operators compute, and such a coupling as one operation.

They are those of images, three convolutions, and of sequences, two perceptrons of three layers over the channels of
every position. Such networks take most of a training step's time (docs/performance/throughput.md), and calls take
longest in the steps of small flows. On a CPU, if the compiled operators can be loaded (`layers.kernels.load`), the
network, the gate, scale and shift, and the log-determinant are one call in either direction, `invertbench::coupling`;
without gradients, `invertbench::convolutions` and `invertbench::perceptron` are a network alone. An image, or a tile of
positions, passes through all layers in the cache, backward as well. Otherwise PyTorch computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.library import Library

from flows.affine import COMPILED, Gate, affine_coupling
from layers.kernels import load as kernels

Coupled = tuple[Tensor, Tensor]
NetworkName = Literal["convolutions", "perceptrons"]

# Convolutions: the widest coupling of a split step. Perceptrons: above, a weight matrix exceeds the first-level cache,
# and a matrix library is faster.
WIDEST = {"convolutions": 512, "perceptrons": 128}
OPERANDS = 6  # weights and biases of a perceptron


class Perceptron(nn.Sequential):
    """Linear, activation, linear, activation, linear, over the channels of (N, inputs, length).

    Weights are initially orthogonal, biases zero. Differentiable twice.

    Args:
        inputs, outputs: numbers of input and output channels.
        width: number of hidden units per position.
        activation: nn.Tanh or nn.ReLU.
    """

    def __init__(self, inputs: int, outputs: int, width: int, activation: type[nn.Tanh] | type[nn.ReLU]) -> None:
        linears = [nn.Linear(inputs, width), nn.Linear(width, width), nn.Linear(width, outputs)]
        for linear in linears:
            nn.init.orthogonal_(linear.weight)
            nn.init.zeros_(linear.bias)
        super().__init__(linears[0], activation(), linears[1], activation(), linears[2])
        self.bounded = activation is nn.Tanh

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, inputs, length) to (N, outputs, length)."""
        weights = self.operands()
        if _trained(x, *weights) or not _served("perceptrons", x, *weights):
            return _perceptron(self.bounded, x, *weights)
        y, _ = torch.ops.invertbench.perceptron(x, weights, self.bounded, False)
        return y

    def operands(self) -> list[Tensor]:
        """Return weight and bias of every linear layer, in order."""
        return [value for layer in self if isinstance(layer, nn.Linear) for value in (layer.weight, layer.bias)]


def convolutions(x: Tensor, *layers: nn.Module) -> Tensor:
    """Map images or sequences (N, inputs, *spatial) to (N, outputs, *spatial), with ELU between layers.

    Differentiable twice.

    Args:
        x: the images or sequences.
        layers: three weight-normalised "same" convolutions with a bias, of kernel sizes 3, 1 and 3.
    """
    weights = operands(*layers)
    if _trained(x, *weights) or not _served("convolutions", x, *weights):
        return _convolutions(x, *weights)
    y, _ = torch.ops.invertbench.convolutions(x, weights, False)
    return y


def operands(*layers: nn.Module) -> list[Tensor]:
    """Return gain, direction and bias of every weight-normalised convolution, in order."""
    tensors = []
    for layer in layers:
        weight: Any = cast(Any, layer).parametrizations.weight
        tensors += [weight.original0, weight.original1, cast(Tensor, layer.bias)]
    return tensors


def couple(network: NetworkName, x: Tensor, kept: int, gate: Gate, weights: Sequence[Tensor]) -> Coupled:
    """Scale and shift channels by a network of the first `kept`, which are unchanged.

    Args:
        network: convolutions, of whose output the first half is the shift and the second s, or perceptrons, of which
            the first one, with tanh, gives s, and the second one, with ReLU, the shift.
        x: (N, channels, *spatial).
        kept: number of unchanged channels.
        gate: from the network's s to the log-scale.
        weights: of the network, in its order.

    Returns:
        y as x, and log|det| of shape (N,).
    """
    if gate not in COMPILED or not _served(network, x, *weights):
        return _plain(network, x, kept, gate, weights)
    _define_plain_coupling()
    y, log_det = torch.ops.invertbench.coupling(x, weights, kept, COMPILED.index(gate), network)
    return y, log_det


def _plain(network: str, x: Tensor, kept: int, gate: Gate, weights: Sequence[Tensor]) -> Coupled:
    """Compute the same in PyTorch."""
    unchanged, moved = x.split([kept, x.shape[1] - kept], dim=1)
    if network == "convolutions":
        shift, s = _convolutions(unchanged, *weights).chunk(2, dim=1)
    else:
        s = _perceptron(True, unchanged, *weights[:OPERANDS])
        shift = _perceptron(False, unchanged, *weights[OPERANDS:])
    return affine_coupling(unchanged, moved, gate(s), shift)


def _convolutions(x: Tensor, *weights: Tensor) -> Tensor:
    convolve = F.conv2d if x.ndim == 4 else F.conv1d
    for layer in range(3):
        gain, direction, bias = weights[3 * layer : 3 * layer + 3]
        # Not torch._weight_norm, whose second derivatives are wrong (torch 2.14).
        norm = torch.linalg.vector_norm(direction.flatten(1), dim=1).view(gain.shape)
        x = convolve(F.elu(x) if layer else x, direction * (gain / norm), bias, padding=direction.shape[-1] // 2)
    return x


def _perceptron(bounded: bool, x: Tensor, *weights: Tensor) -> Tensor:
    weight1, bias1, weight2, bias2, weight3, bias3 = weights
    activation = torch.tanh if bounded else torch.relu
    hidden = activation(F.linear(x.transpose(1, 2), weight1, bias1))
    return F.linear(activation(F.linear(hidden, weight2, bias2)), weight3, bias3).transpose(1, 2)


def _trained(*tensors: Tensor) -> bool:
    """Return whether a result will be differentiated, for which the network alone has no compiled operator."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _served(network: NetworkName, x: Tensor, *weights: Tensor) -> bool:
    """Return whether the compiled operators support these: on a CPU, not too wide, in full precision."""
    if network == "convolutions" and x.ndim != 4:
        return False
    return weights[0].shape[0] <= WIDEST[network] and kernels.serve_on_processor(x, *weights)


@cache
def _define_plain_coupling() -> Library:
    """Let the compiled operator call `_plain`, whose graph gives derivatives of its gradients."""

    def plain_coupling(x: Tensor, weights: Sequence[Tensor], kept: int, gate: int, network: str) -> Coupled:
        return _plain(network, x, kept, COMPILED[gate], weights)

    library = Library("invertbench", "IMPL")
    library.impl("plain_coupling", plain_coupling, "CompositeImplicitAutograd")
    return library
