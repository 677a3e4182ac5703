"""The coupling networks of sequences: perceptrons of three layers over the channels of every position.

Such perceptrons take most of a training step's time (docs/performance/throughput.md). On a CPU, if the compiled
operators can be loaded (`layers.kernels.load`) and up to a width of `WIDEST`, `invertbench::perceptron` computes them:
tiles of positions pass through all three layers in the first-level cache, backward as well. Otherwise PyTorch does.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flows.affine import affine_coupling
from flows.gates import Gate
from flows.second_derivatives import differentiable_gradients
from layers.kernels import load as kernels

WIDEST = 128  # above, a weight matrix exceeds the first-level cache, and a matrix library is faster
OPERANDS = 6  # weights and biases of a perceptron

Coupled = tuple[Tensor, Tensor]


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
        if trained or not _kernel_serves(x, *weights):
            return _plain(self.bounded, x, *weights)
        y, _ = torch.ops.invertbench.perceptron(x, *weights, self.bounded, False)
        return y

    def operands(self) -> list[Tensor]:
        """Return weight and bias of every linear layer, in order."""
        return [value for layer in self if isinstance(layer, nn.Linear) for value in (layer.weight, layer.bias)]


def perceptron_coupling(x: Tensor, kept: int, gate: Gate, log_scale: Perceptron, shift: Perceptron) -> Coupled:
    """Scale and shift channels by functions of the first `kept`, which are unchanged, at every position.

    Args:
        x: (N, channels, length).
        kept: number of unchanged channels.
        gate: from the output of `log_scale` to the log-scale.
        log_scale, shift: perceptrons from the kept channels to the others.

    Returns:
        y as x, and log|det| of shape (N,).
    """
    weights = [*log_scale.operands(), *shift.operands()]
    if _kernel_serves(x, *weights) and log_scale.bounded and not shift.bounded:
        coupled: Coupled = _Compiled.apply(kept, gate, x, *weights)
        return coupled
    return _plain_coupling(kept, gate, x, *weights)


class _Compiled(torch.autograd.Function):
    """A coupling by `invertbench::perceptron`, with its gradient; second derivatives are plain PyTorch's.

    One function for both perceptrons and what they scale and shift: the gradients of the kept channels are added up in
    place, and a step calls fewer operators.
    """

    @staticmethod
    def forward(ctx: Any, kept: int, gate: Gate, x: Tensor, *weights: Tensor) -> Coupled:
        unchanged, moved = x[:, :kept], x[:, kept:]
        keep = any(ctx.needs_input_grad)
        s, hidden_s = torch.ops.invertbench.perceptron(unchanged, *weights[:OPERANDS], True, keep)
        shift, hidden_shift = torch.ops.invertbench.perceptron(unchanged, *weights[OPERANDS:], False, keep)
        y, log_det = torch.ops.invertbench.affine_coupling(unchanged, moved, gate(s), shift)
        ctx.kept, ctx.gate = kept, gate
        ctx.save_for_backward(x, *weights, s, hidden_s, hidden_shift)
        return y, log_det

    @staticmethod
    def backward(ctx: Any, of_y: Tensor, of_log_det: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights, s, hidden_s, hidden_shift = ctx.saved_tensors
        if torch.is_grad_enabled():
            plain = partial(_plain_coupling, ctx.kept, ctx.gate)
            needed = ctx.needs_input_grad[2:]
            return None, None, *differentiable_gradients(plain, (x, *weights), needed, (of_y, of_log_det))
        unchanged, moved = x[:, : ctx.kept], x[:, ctx.kept :]
        with torch.enable_grad():
            s = s.detach().requires_grad_()
            log_scale = ctx.gate(s)
        of_x, of_s = torch.ops.invertbench.affine_coupling_backward(of_y, of_log_det, moved, log_scale.detach())
        if log_scale is not s:
            (of_s,) = torch.autograd.grad(log_scale, s, of_s)
        found = []
        for gradient, operands, hidden, bounded in (
            (of_s, weights[:OPERANDS], hidden_s, True),
            (of_y[:, ctx.kept :], weights[OPERANDS:], hidden_shift, False),
        ):
            found += torch.ops.invertbench.perceptron_backward(
                of_x[:, : ctx.kept], gradient, unchanged, *operands, hidden, bounded
            )
        return None, None, of_x, *found


def _kernel_serves(*tensors: Tensor) -> bool:
    """Return whether the compiled operator supports these: on a CPU, not too wide, and without lowered precision."""
    if not tensors[0].is_cpu or tensors[1].shape[0] > WIDEST or torch.is_autocast_enabled("cpu"):
        return False
    return kernels.serve(*tensors)


def _plain(bounded: bool, x: Tensor, *weights: Tensor) -> Tensor:
    """Compute the same in PyTorch."""
    weight1, bias1, weight2, bias2, weight3, bias3 = weights
    activation = torch.tanh if bounded else torch.relu
    hidden = activation(F.linear(x.transpose(1, 2), weight1, bias1))
    return F.linear(activation(F.linear(hidden, weight2, bias2)), weight3, bias3).transpose(1, 2)


def _plain_coupling(kept: int, gate: Gate, x: Tensor, *weights: Tensor) -> Coupled:
    """Compute the same in PyTorch."""
    unchanged, moved = x.split([kept, x.shape[1] - kept], dim=1)
    s, shift = _plain(True, unchanged, *weights[:OPERANDS]), _plain(False, unchanged, *weights[OPERANDS:])
    return affine_coupling(unchanged, moved, gate(s), shift)
