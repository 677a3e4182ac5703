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

from layers.kernels import load as kernels

WIDEST = 512  # the widest coupling of a split step


def convolutions(x: Tensor, *layers: nn.Module) -> Tensor:
    """Map images or sequences (N, inputs, *spatial) to (N, outputs, *spatial); differentiable twice.

    Args:
        x: the images or sequences.
        layers: three weight-normalised "same" convolutions, of kernel sizes 3, 1 and 3.
    """
    weights = operands(*layers)
    trained = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, *weights))
    if trained or not kernel_serves(x, *weights):
        return _plain(x, *weights)
    y, _ = torch.ops.invertbench.convolutions(x, weights, False)
    return y


def operands(*layers: nn.Module) -> list[Tensor]:
    """Return gain, direction and bias of every weight-normalised convolution, in order."""
    tensors = []
    for layer in layers:
        weight: Any = cast(Any, layer).parametrizations.weight
        tensors += [weight.original0, weight.original1, cast(Tensor, layer.bias)]
    return tensors


def s_and_shift(kept: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the two outputs of a coupling's network in PyTorch: of its channels, the first half is the shift."""
    shift, s = _plain(kept, *weights).chunk(2, dim=1)
    return s, shift


def kernel_serves(*tensors: Tensor) -> bool:
    """Return whether the compiled operator supports these: images on a CPU, not too wide, in full precision."""
    return tensors[0].ndim == 4 and tensors[1].shape[0] <= WIDEST and kernels.serve_on_processor(*tensors)


def _plain(x: Tensor, *weights: Tensor) -> Tensor:
    """Compute the same in PyTorch."""
    convolve = F.conv2d if x.ndim == 4 else F.conv1d
    for layer in range(3):
        gain, direction, bias = weights[3 * layer : 3 * layer + 3]
        # Not torch._weight_norm, whose second derivatives are wrong (torch 2.14).
        norm = torch.linalg.vector_norm(direction.flatten(1), dim=1).view(gain.shape)
        x = convolve(F.elu(x) if layer else x, direction * (gain / norm), bias, padding=direction.shape[-1] // 2)
    return x
