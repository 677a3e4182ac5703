"""Inverse-Flow: the inverse of a corner-padded convolution as the forward map."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from layers.base import InvertibleLinear, check_whole
from layers.linalg.corner import corner_convolution, corner_mask, corner_matrix, corner_solver, corner_taps


class InverseFlow(InvertibleLinear, name="inverse-flow"):
    r"""Inverse of a k x k convolution over all channels, zero-padded at the top left only; no bias.

    y = W x is the solution of M y = x, where M is the convolution

        x[r, s] = sum over 0 <= i, j < k of A[i, j] y[r - i, s - j],    A[0, 0] lower triangular with a unit diagonal,

    so every entry of the output depends on all pixels up and to the left of it, and sampling is a plain convolution.

    Backward is one solve of the transposed system and a correlation: with the gradient g of y, that of x is
    u = M^-T g, and that of A[i, j] is minus the sum over positions of u[r, s] y[r - i, s - j]^T. Each solve runs over
    the pixels of an anti-diagonal at once.

    Determinant: that of M is 1, so log|det W| = 0.
    Inverse: the convolution M.
    Parameters: c^2 k^2 (c^2 k for a sequence), c (c + 1) / 2 of them masked.
    Singular cases: none. With large weights the forward map grows geometrically across the event.

    Family: convolutions
    Cost:
        forward: c^2 n k^2 multiply-adds for images, c^2 n k for sequences, by substitution (twice with the kernel
        `invertbench::emerging_inverse`, which `cinc` inverts with), one pixel after the other along diagonals
        inverse: as many, all pixels at once
        log-det: none, it is 0
    Shapes: every (C, L) and (C, H, W); a kernel may be larger than the event
    Source: Parallel backpropagation for inverse of a convolution (Nagar and Varma, AISTATS 2025); its unit of four
    such layers, one padded at each corner, is not here

    Args:
        kernel_size: k, at least 1, the same on both axes.
    """

    weight_mask: Tensor

    def __init__(self, shape: tuple[int, ...], *, kernel_size: int = 3) -> None:
        super().__init__(shape)
        check_whole("inverse-flow", "kernel_size", kernel_size)
        self.kernel_size = kernel_size
        self.backwards = [True] * (len(self.shape) - 1)
        mask = corner_mask(self.channels, kernel_size, len(self.backwards), unit=True)
        self.register_buffer("weight_mask", mask, persistent=False)
        self.weight = nn.Parameter(0.02 * torch.randn(mask.shape) * mask)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Solve; the log-det is 0."""
        return corner_solver(self._taps(), self.shape[1:], self.backwards)(x), self.log_det()

    def log_det(self) -> Tensor:
        """Return 0."""
        return self.weight.new_zeros(())

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Keep the current taps; the callable convolves."""
        return partial(corner_convolution, self._taps(), backwards=self.backwards)

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return the inverse of M, which is written down entry by entry."""
        return torch.linalg.inv(corner_matrix(self._taps(), self.shape[1:], self.backwards))

    def _taps(self) -> Tensor:
        """Return A, index 0 at the pixel itself."""
        return corner_taps(self.weight, self.weight_mask, unit=True)
