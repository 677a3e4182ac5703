"""CInC: one convolution padded at one corner, over all channels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from layers.base import InvertibleLinear, check_whole
from layers.linalg.corner import corner_convolution, corner_mask, corner_matrix, corner_solver, corner_taps


class CInC(InvertibleLinear, name="cinc"):
    r"""One k x k convolution over all channels, zero-padded at the top left only; no bias.

    Every pixel sees itself and k - 1 pixels up and to the left,

        y[r, s] = sum over 0 <= i, j < k of A[i, j] x[r - i, s - j],    A[0, 0] lower triangular over the channels,

    so W is block triangular in raster order with A[0, 0] as each of its n diagonal blocks: it is invertible if and
    only if A[0, 0] is. That tap is kept triangular, as in the released code, which orders the channels the other way
    round; a full matrix there would be a 1x1 convolution more, which the flow's step has. One half of an Emerging
    convolution with kernels of 2 k - 1; FInC is four of these, on a quarter of the channels each, with a unit
    diagonal.

    Determinant: log|det W| = n * sum over channels of log|A[0, 0]_cc|.
    Inverse: forward substitution from the padded corner, exact and differentiable: by `invertbench::emerging_inverse`
    on a CPU or a CUDA device in 32 or 64 bits, else by `layers.linalg.causal`.
    Parameters: c^2 k^2 (c^2 k for a sequence), c (c - 1) / 2 of them masked.
    Singular cases: where a diagonal entry of A[0, 0] is zero; log|det| = -inf there. With large weights the inverse
    grows geometrically across the event.

    Family: convolutions
    Cost:
        forward: c^2 n k^2 multiply-adds for images, c^2 n k for sequences
        inverse: as many by substitution (twice with the kernel), one pixel after the other along diagonals
        log-det: c additions
    Shapes: every (C, L) and (C, H, W); a kernel may be larger than the event
    Source: CInC Flow (Nagar, Dufraisse and Varma, TPM 2021)

    Args:
        kernel_size: k, at least 1, the same on both axes.
    """

    weight_mask: Tensor

    def __init__(self, shape: tuple[int, ...], *, kernel_size: int = 3) -> None:
        super().__init__(shape)
        check_whole("cinc", "kernel_size", kernel_size)
        self.kernel_size = kernel_size
        self.backwards = [True] * (len(self.shape) - 1)
        mask = corner_mask(self.channels, kernel_size, len(self.backwards), unit=False)
        self.register_buffer("weight_mask", mask, persistent=False)
        weight = 0.02 * torch.randn(mask.shape) * mask
        weight.flatten(2)[..., 0].diagonal().add_(1)
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Convolve, and return n times the logs of the diagonal of A[0, 0]."""
        return corner_convolution(self._taps(), x, self.backwards), self.log_det()

    def log_det(self) -> Tensor:
        """Return n times the logs of the diagonal of A[0, 0]."""
        return self.positions * self.weight.flatten(2)[..., 0].diagonal().abs().log().sum()

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Keep the current taps; without kernels, factorise the blocks of the solve once."""
        return corner_solver(self._taps(), self.shape[1:], self.backwards)

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return W, entry by entry from the definition."""
        return corner_matrix(self._taps(), self.shape[1:], self.backwards)

    def _taps(self) -> Tensor:
        """Return A, index 0 at the pixel itself."""
        return corner_taps(self.weight, self.weight_mask, unit=False)
