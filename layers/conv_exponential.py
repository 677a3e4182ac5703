"""The convolution exponential: exp(M) for a zero-padded convolution M."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from layers.base import InvertibleLinear, check_whole
from layers.linalg.convolution import convolution_matrix

LARGEST_BOUND = 16.0
"""Bound on the norm of M: at exp(2 * 16) the condition number takes 14 of the 16 digits of float64."""


class ConvExponential(InvertibleLinear, name="conv-exponential"):
    r"""Convolution exponential, y = exp(M) x = x + M x + M M x / 2 + ..., where M is a k x k convolution; no bias.

    M is a cross-correlation with zero "same" padding, and sees all channels. Its norm is kept at or below `bound`, so
    that with a fixed number of terms the rest of the series is below the rounding of the dtype: the log-determinant of
    the whole series is then that of the map. The kernel is K, or K scaled down to
    the bound where it is larger:

        |M|_2 <= sqrt(taps) |R|_2,    R = K as a matrix (c, c * taps),

    since M applies R to the patches of an image, in which every pixel occurs at most `taps` times.

    Determinant: log|det exp(M)| = trace M = n * sum over channels of the centre tap's diagonal, exactly: with zero
    padding the diagonal of M holds the centre tap at every position.
    Inverse: exp(-M), by the same series.
    Parameters: c^2 k^2 (c^2 k for a sequence), drawn from N(0, 0.02^2): nearly the identity.
    Singular cases: none. The condition number is at most exp(2 bound).

    Family: convolutions
    Cost:
        forward: c^2 n k^2 multiply-adds for each term, 16 in float32 and 24 in float64 for the default bound
        inverse: the same
        log-det: c additions, after O(c^3) for the bound
    Shapes: every (C, L) and (C, H, W); a kernel may be larger than the event
    Source: The Convolution Exponential (Hoogeboom et al., NeurIPS 2020); the bound is of Singla and Feizi (ICLR 2021)

    Args:
        kernel_size: k, odd, the same on both axes.
        bound: of the norm of M, above 0 and at most 16. The paper normalises the norm by power iteration and cuts the
            series by hand.
    """

    def __init__(self, shape: tuple[int, ...], *, kernel_size: int = 3, bound: float = 2.0) -> None:
        super().__init__(shape)
        check_whole("conv-exponential", "kernel_size", kernel_size, odd=True)  # the log-det is read from the centre tap
        if not 0 < bound <= LARGEST_BOUND:
            raise ValueError(
                f"conv-exponential: bound = {bound!r} leaves no convolution, or none that rounding lets invert; use a "
                f"number above 0, up to {LARGEST_BOUND:g}"
            )
        self.kernel_size, self.bound = kernel_size, bound
        axes = len(self.shape) - 1
        self.weight = nn.Parameter(0.02 * torch.randn(self.channels, self.channels, *[kernel_size] * axes))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the series, and the trace of M."""
        kernel = self.kernel()
        return self._series(kernel, x), self._trace(kernel)

    def log_det(self) -> Tensor:
        """Return the trace of M."""
        return self._trace(self.kernel())

    def _trace(self, kernel: Tensor) -> Tensor:
        return self.positions * kernel.flatten(2)[..., kernel[0, 0].numel() // 2].diagonal().sum()

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Scale the kernel once; the callable applies the series of -M."""
        return partial(self._series, -self.kernel())

    def kernel(self) -> Tensor:
        """Return the kernel of M, within the bound."""
        rows = self.weight.flatten(1)
        square = torch.linalg.eigvalsh(rows @ rows.T)[-1] * self.weight[0, 0].numel()
        return self.weight * (square / self.bound**2).clamp(min=1.0).rsqrt()

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return the matrix exponential of M, which is written down entry by entry."""
        centre = [self.kernel_size // 2] * (len(self.shape) - 1)
        return torch.linalg.matrix_exp(convolution_matrix(self.kernel(), self.shape[1:], centre))

    def _series(self, kernel: Tensor, x: Tensor) -> Tensor:
        convolve = F.conv2d if len(self.shape) == 3 else F.conv1d
        total = term = x
        for power in range(1, terms(self.bound, torch.finfo(x.dtype).eps) + 1):
            term = convolve(term, kernel / power, padding="same")
            total = total + term
        return total


def terms(bound: float, eps: float) -> int:
    """Return the number of terms after which the rest of exp(M), |M| <= bound, is below eps times its smallest value.

    The terms bound^i / i! fall by half or more from i = 2 bound on, so the rest is at most the last one taken.
    """
    count, term = 1, bound
    while count < 2 * bound or term > eps * math.exp(-bound):
        count += 1
        term *= bound / count
    return count
