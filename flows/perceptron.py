"""A perceptron of three layers over the channels of every position, laid out for a processor's caches.

Such perceptrons are the couplings of sequences, and take most of a training step's time (docs/throughput.md). On a CPU,
if the compiled operators can be loaded (`layers.kernels.load`) and up to a width of `WIDEST`,
`invertbench::perceptron` computes them: tiles of positions pass through all three layers in the first-level cache,
backward as well. Otherwise plain PyTorch does, and its time depends on the following, besides the arithmetic:

- Hidden values of all positions at once do not fit into any cache. Positions are processed in parts of `PART` hidden
  values; autograd processes them in the opposite order, each part in the cache again.
- Matrix libraries are several times slower if the result of a product has few columns than if it has few rows.
  Positions are the columns of inputs and outputs, and the rows of hidden values, so that no product is of the slow
  kind, in the backward pass either.
- torch's tanh costs about four times its sigmoid on a CPU, and tanh(z) = 2 sigmoid(2 z) - 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from layers.kernels import load as kernels

PART = 2**19  # 2 MB in float32; equally fast from 2^17 to 2^20 (AMD EPYC, 1 MB of second-level cache per core)
WIDEST = 128  # above, a weight matrix exceeds the first-level cache, and a matrix library is faster


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

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, inputs, length) to (N, outputs, length)."""
        bounded = isinstance(self[1], nn.Tanh)
        weights = [value for layer in self if isinstance(layer, nn.Linear) for value in (layer.weight, layer.bias)]
        if not _kernel_serves(x, *weights):
            return _plain(bounded, x, *weights)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, *weights)):
            y: Tensor = _Compiled.apply(bounded, x, *weights)
            return y
        y, _ = torch.ops.invertbench.perceptron(x, *weights, bounded, False)
        return y


class _Compiled(torch.autograd.Function):
    """`invertbench::perceptron` with its gradient; second derivatives are plain PyTorch's."""

    @staticmethod
    def forward(ctx: Any, bounded: bool, x: Tensor, *weights: Tensor) -> Tensor:
        y, hidden = torch.ops.invertbench.perceptron(x, *weights, bounded, True)
        ctx.bounded = bounded
        ctx.save_for_backward(x, *weights, hidden)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *operands, hidden = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return None, *torch.ops.invertbench.perceptron_backward(gradient, *operands, hidden, ctx.bounded)
        # Views, because saved tensors may depend on one another in the caller's graph.
        inputs = [operand.view_as(operand) for operand in operands]
        wanted = [one for one, needed in zip(inputs, ctx.needs_input_grad[1:], strict=True) if needed]
        found = iter(torch.autograd.grad(_plain(ctx.bounded, *inputs), wanted, gradient, create_graph=True))
        return None, *(next(found) if needed else None for needed in ctx.needs_input_grad[1:])


def _kernel_serves(*tensors: Tensor) -> bool:
    """Return whether the compiled operator supports these: on a CPU, not too wide, and without lowered precision."""
    if not tensors[0].is_cpu or tensors[1].shape[0] > WIDEST or torch.is_autocast_enabled("cpu"):
        return False
    return kernels.serve(*tensors)


def _plain(
    bounded: bool,
    x: Tensor,
    weight1: Tensor,
    bias1: Tensor,
    weight2: Tensor,
    bias2: Tensor,
    weight3: Tensor,
    bias3: Tensor,
) -> Tensor:
    """Compute the same in PyTorch."""
    activation: Callable[[Tensor], Tensor] = torch.relu
    if bounded:  # doubling is exact, and free when applied to the weights
        weight1, bias1, weight2, bias2 = (2 * value for value in (weight1, bias1, weight2, bias2))
        activation = _tanh_of_half
    # In one piece, as its product with the gradient would otherwise be of the slow kind.
    weight1 = weight1.T.contiguous()
    columns = x.transpose(0, 1).flatten(1)  # a column for each position of each event
    part = max(1, PART // len(weight2)) if x.is_cpu else max(1, columns.shape[1])
    outputs = []
    for some in columns.split(part, 1):
        hidden = activation(torch.addmm(bias1, some.T, weight1))
        hidden = activation(torch.addmm(bias2, hidden, weight2.T))
        outputs.append(torch.addmm(bias3[:, None], weight3, hidden.T))
    return torch.cat(outputs, 1).view(len(weight3), len(x), x.shape[2]).transpose(0, 1)


def _tanh_of_half(z: Tensor) -> Tensor:
    return torch.rsub(torch.sigmoid(z), -1, alpha=-2)  # 2 sigmoid(z) - 1 in one pass
