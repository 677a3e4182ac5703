"""The coupling network of images: 3x3 convolution, ELU, 1x1, ELU, 3x3, all weight-normalised and with a bias.

Such networks take most of a training step's time (docs/performance/throughput.md). On a CPU, if the compiled operators
can be loaded (`layers.kernels.load`), `invertbench::convolutions` computes them: image by image through all layers, in
the second-level cache, backward as well, with weight normalisation and ELU in the same pass. Otherwise PyTorch does.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flows.second_derivatives import differentiable_gradients
from layers.kernels import load as kernels

WIDEST = 512  # the widest coupling of a split step


def convolutions(x: Tensor, *layers: nn.Module) -> Tensor:
    """Map images or sequences (N, inputs, *spatial) to (N, outputs, *spatial); differentiable twice.

    Args:
        x: the images or sequences.
        layers: three weight-normalised "same" convolutions, of kernel sizes 3, 1 and 3.
    """
    weights = [tensor for layer in layers for tensor in _parameters(layer)]
    if not _kernel_serves(x, *weights):
        y = _plain(x, *weights)
    elif torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, *weights)):
        y = _Compiled.apply(x, *weights)
    else:
        y, _ = torch.ops.invertbench.convolutions(x, weights, False)
    return y


def _parameters(layer: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
    """Return gain, direction and bias of a weight-normalised convolution."""
    weight: Any = layer.get_submodule("parametrizations.weight")
    return weight.original0, weight.original1, cast(Tensor, layer.bias)


class _Compiled(torch.autograd.Function):
    """`invertbench::convolutions` with its gradient; second derivatives are plain PyTorch's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *weights: Tensor) -> Tensor:
        y, saved = torch.ops.invertbench.convolutions(x, weights, True)
        ctx.save_for_backward(x, *weights, saved)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *operands, saved = ctx.saved_tensors
        if not torch.is_grad_enabled():
            x, *weights = operands
            return tuple(torch.ops.invertbench.convolutions_backward(gradient, x, weights, saved))
        return differentiable_gradients(_plain, operands, ctx.needs_input_grad, gradient)


def _kernel_serves(*tensors: Tensor) -> bool:
    """Return whether the compiled operator supports these: images on a CPU, not too wide, in full precision."""
    if tensors[0].ndim != 4 or not tensors[0].is_cpu or torch.is_autocast_enabled("cpu"):
        return False
    return tensors[1].shape[0] <= WIDEST and kernels.serve(*tensors)


def _plain(x: Tensor, *weights: Tensor) -> Tensor:
    """Compute the same in PyTorch."""
    convolve = F.conv2d if x.ndim == 4 else F.conv1d
    for layer in range(3):
        gain, direction, bias = weights[3 * layer : 3 * layer + 3]
        # Not torch._weight_norm, whose second derivatives are wrong (torch 2.14).
        norm = torch.linalg.vector_norm(direction.flatten(1), dim=1).view(gain.shape)
        x = convolve(F.elu(x) if layer else x, direction * (gain / norm), bias, padding=direction.shape[-1] // 2)
    return x
