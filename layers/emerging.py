"""Emerging convolutions (Hoogeboom, van den Berg and Welling, ICML 2019)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from layers.base import InvertibleLinear, check_whole
from layers.kernels import load as kernels
from layers.linalg.causal import factorise, solve
from layers.linalg.convolution import convolution_matrix

# Up to here the compiled forward pass is the faster one, alone and with backward (measured on 3, 12 and 48 channels);
# on 96 and 192 it is so alone, but with backward up to a tenth slower.
MOST_CHANNELS = 48


class Emerging(InvertibleLinear, name="emerging"):
    """Two masked convolutions, y = conv_w2(conv_w1(x)) + b, each triangular in opposite raster orders.

    Cross-correlations with zero "same" padding, kernel size k odd, m = (k - 1) / 2. The mask of w1 keeps the
    taps with row >= m and column >= m, and at the centre tap the lower triangle over the channels, diagonal
    included; the mask of w2 is that of w1 flipped on all four axes. Together they see the full k x k window.

    Determinant: log|det W| = n * sum over channels of log|w1_cc| + log|w2_cc| at the centre taps.
    Inverse: w2 first, then w1, each an exact triangular solve, differentiable: by `invertbench::emerging_inverse` on
    a CPU or a CUDA device in 32 or 64 bits, else by `layers.linalg.causal`.
    Family: convolutions
    Cost:
        forward: 2 c^2 n (m + 1)^2 multiply-adds per event (m + 1 for a sequence), since only the taps that a mask
        keeps are convolved: by `invertbench::emerging` on a CPU in 32 or 64 bits, up to 48 channels, else by PyTorch
        inverse: as many, by a kernel over the events of a batch or, where they are few, over the pixels of an
        anti-diagonal. Without kernels it takes H steps for an image (more where a row holds more than 128 unknowns),
        and n c / 128 for a sequence
        log-det: 2 c additions
    Source: Emerging convolutions (Hoogeboom, van den Berg and Welling, ICML 2019)
    Singular: where a diagonal entry of a centre tap is zero. A wide kernel with large weights is invertible
    and still ill-conditioned, because the inverse of either factor grows geometrically across the event.

    Shapes: every (C, L) and (C, H, W); a kernel may be larger than the event

    Initially w = N(0, 0.02^2) plus
    the identity at the centre, b = 0. Parameters: 2 c^2 k^2 + c (2 c^2 k + c), masked entries included.

    Args:
        kernel_size: k, odd, the same on both axes.
        bias: whether there is a b, one number per channel.
    """

    weight1_mask: Tensor
    weight2_mask: Tensor

    def __init__(self, shape: tuple[int, ...], *, kernel_size: int = 3, bias: bool = True) -> None:
        super().__init__(shape)
        check_whole(self.label, "kernel_size", kernel_size, odd=True)  # the masks turn about a centre tap
        self.kernel_size = kernel_size
        axes = len(self.shape) - 1

        mask = torch.zeros(self.channels, self.channels, *[kernel_size] * axes, dtype=torch.bool)
        mask[(slice(None), slice(None), *[slice(kernel_size // 2, None)] * axes)] = True
        centre_tap(mask).tril_()
        self.register_buffer("weight1_mask", mask, persistent=False)
        self.register_buffer("weight2_mask", mask.flip(tuple(range(mask.ndim))), persistent=False)

        self.weight1 = nn.Parameter(_initial_weight(self.weight1_mask))
        self.weight2 = nn.Parameter(_initial_weight(self.weight2_mask))
        self.bias = nn.Parameter(torch.zeros(self.channels)) if bias else None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return y = conv_w2(conv_w1(x)) + b, and n times the logs of the centre taps' diagonals."""
        if x.is_cpu and self.channels <= MOST_CHANNELS and kernels.serve(x, self.weight1, self.weight2):
            y, log_det, _ = torch.ops.invertbench.emerging(x, self.weight1, self.weight2, self.bias, False)
            return y, log_det
        return self._by_torch(x)

    def _by_torch(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same as `forward`, by PyTorch's convolutions."""
        first, second = self._kept_taps()
        reach = [size - 1 for size in reversed(first.shape[2:])]  # F.pad counts axes from the last
        convolve = F.conv2d if len(self.shape) == 3 else F.conv1d
        between = convolve(F.pad(x, [pad for size in reach for pad in (0, size)]), first)
        y = convolve(F.pad(between, [pad for size in reach for pad in (size, 0)]), second, self.bias)
        return y, self.log_det()

    def log_det(self) -> Tensor:
        """Return n times the logs of the centre taps' diagonals."""
        diagonals = torch.cat([centre_tap(weight).diagonal() for weight in (self.weight1, self.weight2)])
        return self.positions * diagonals.abs().log().sum()

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Keep the current weights to solve for w2, then for w1; without kernels, factorise both once.

        Both plain solves are brought to the form of `layers.linalg.causal`: w1, which looks down and to the right, by
        turning the image about; w2, causal with an upper triangular centre, by reversing the channels.
        """
        bias = None if self.bias is None else self.bias.clone()
        if kernels.serve(self.weight1, self.weight2):
            weight1, weight2 = self.weight1.clone(), self.weight2.clone()
            return lambda y: torch.ops.invertbench.emerging_inverse(y, weight1, weight2, bias)
        height, width = (1, *self.shape[1:])[-2:]
        first, second = (taps if taps.ndim == 4 else taps.unsqueeze(2) for taps in self._kept_taps())
        factors1 = factorise(first, width)
        factors2 = factorise(second.flip(0, 1, 2, 3), width)
        offset = 0 if bias is None else bias.reshape(-1, 1, 1)

        def invert(y: Tensor) -> Tensor:
            image = y.reshape(-1, self.channels, height, width) - offset
            between = solve(factors2, image.flip(1)).flip(1)
            return solve(factors1, between.flip(2, 3)).flip(2, 3).reshape(y.shape)

        return invert

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return W2 W1, (D, D), each written down entry by entry from the definition."""
        centre = [self.kernel_size // 2] * (len(self.shape) - 1)
        first, second = (
            convolution_matrix(torch.where(mask, weight, 0), self.shape[1:], centre)
            for weight, mask in ((self.weight1, self.weight1_mask), (self.weight2, self.weight2_mask))
        )
        return second @ first

    def _kept_taps(self) -> tuple[Tensor, Tensor]:
        """Return the corners of w1 and w2 that the masks keep, without the taps that no pixel of the event reaches."""
        centre = self.kernel_size // 2
        reach = [min(centre + 1, size) for size in self.shape[1:]]
        forwards = (slice(None), slice(None), *[slice(centre, centre + size) for size in reach])
        backwards = (slice(None), slice(None), *[slice(centre + 1 - size, centre + 1) for size in reach])
        first = self.weight1.masked_fill(~self.weight1_mask, 0)[forwards]
        return first, self.weight2.masked_fill(~self.weight2_mask, 0)[backwards]


def centre_tap(weight: Tensor) -> Tensor:
    """Return a view of the c x c matrix at the centre of a kernel of odd size."""
    taps = weight.flatten(2)
    return taps[..., taps.shape[-1] // 2]


def _initial_weight(mask: Tensor) -> Tensor:
    """Return weights N(0, 0.02^2) plus the identity at the centre, under the mask."""
    weight = 0.02 * torch.randn(mask.shape)
    centre_tap(weight).diagonal().add_(1)
    return weight * mask
