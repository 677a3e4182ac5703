"""The coupling networks of sequences: perceptrons of three layers over the channels of every position.

Such perceptrons take most of a training step's time (docs/performance/throughput.md). On a CPU, if the compiled
operators can be loaded (`layers.kernels.load`) and up to a width of `WIDEST`, `invertbench::perceptron` computes them:
tiles of positions pass through all three layers in the first-level cache, backward as well. Otherwise PyTorch does.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from layers.kernels import load as kernels

WIDEST = 128  # above, a weight matrix exceeds the first-level cache, and a matrix library is faster
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
        trained = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, *weights))
        if trained or not kernel_serves(x, *weights):
            return _plain(self.bounded, x, *weights)
        y, _ = torch.ops.invertbench.perceptron(x, *weights, self.bounded, False)
        return y

    def operands(self) -> list[Tensor]:
        """Return weight and bias of every linear layer, in order."""
        return [value for layer in self if isinstance(layer, nn.Linear) for value in (layer.weight, layer.bias)]


def s_and_shift(kept: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outputs of a coupling's network in PyTorch: s by a perceptron with tanh, shift by one with ReLU."""
    return _plain(True, kept, *weights[:OPERANDS]), _plain(False, kept, *weights[OPERANDS:])


def kernel_serves(*tensors: Tensor) -> bool:
    """Return whether the compiled operator supports these: on a CPU, not too wide, in full precision."""
    return tensors[1].shape[0] <= WIDEST and kernels.serve_on_processor(*tensors)


def _plain(bounded: bool, x: Tensor, *weights: Tensor) -> Tensor:
    """Compute the same in PyTorch."""
    weight1, bias1, weight2, bias2, weight3, bias3 = weights
    activation = torch.tanh if bounded else torch.relu
    hidden = activation(F.linear(x.transpose(1, 2), weight1, bias1))
    return F.linear(activation(F.linear(hidden, weight2, bias2)), weight3, bias3).transpose(1, 2)
