"""Spectral convolutions: every channel filtered by one gain per frequency, in the Fourier or the cosine domain."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Literal

import torch
from torch import Tensor, nn

from layers.base import InvertibleLinear, check_choice
from layers.linalg.transforms import dct, dct_matrix, fourier_matrix, inverse_dct


class Spectral(InvertibleLinear, name="spectral"):
    r"""Depthwise convolution as large as the event, with exp(.) of free numbers as its spectrum; no bias.

    ``transform="fft"``: a circular convolution. With F the orthonormal Fourier transform over the n positions and g a
    real image for each channel,

        y = F^-1 (exp(F g) * F x):

    the Fourier transform of a real g has the symmetry that makes y real, so g is free, and the kernel is a circular
    convolution exponential. ``transform="dct"``: a symmetric convolution, of the event continued by reflection,

        y = C^T (exp(s) * C x),    C the orthonormal cosine transform (DCT-II) over the positions.

    Both start at the identity. A gain is never zero; those at frequencies that are their own mirror image, and all of
    the cosine transform, are positive. Channels do not mix.

    Determinant:
        fft: log|det| = sqrt(n) * sum over channels of g at the origin, as the sum of F g over all frequencies.
        dct: the sum of s.
    Inverse: the same with -g or -s.
    Parameters: D, all of them free.
    Singular cases: none.

    Family: convolutions
    Cost:
        forward: O(D log n), two Fourier or cosine transforms of the event and, for the fft, one of g
        inverse: the same
        log-det: c additions (fft) or D (dct)
    Shapes: every (C, L) and (C, H, W)
    Source: Invertible Convolutional Flow (Karami et al., NeurIPS 2019), whose spectra are free numbers in place of
    their exponentials

    Args:
        transform: "fft" or "dct".
    """

    def __init__(self, shape: tuple[int, ...], *, transform: Literal["fft", "dct"] = "fft") -> None:
        super().__init__(shape)
        check_choice("spectral", "transform", transform, ("fft", "dct"))
        self.transform = transform
        self.axes = len(self.shape) - 1
        self.weight = nn.Parameter(torch.zeros(self.shape))  # g or s

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Filter; see the class for the log-det."""
        return self._filter(self.weight, x), self.log_det()

    def log_det(self) -> Tensor:
        """Return the sum of the log-gains; see the class."""
        if self.transform == "dct":
            return self.weight.sum()
        return math.sqrt(self.positions) * self.weight.flatten(1)[:, 0].sum()

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Negate the weights once; the callable filters with the reciprocal gains."""
        return partial(self._filter, -self.weight)

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return a block for each channel, from the transform's own matrix."""
        matrices = [_matrix(self.transform, size).to(self.weight.device) for size in self.shape[1:]]
        matrix = reduce(torch.kron, matrices)
        exponents = self.weight.flatten(1).to(matrix.dtype)
        gains = (exponents if self.transform == "dct" else exponents @ matrix.T).exp()
        blocks = [(matrix.mH @ (gain[:, None] * matrix)).real for gain in gains]
        return torch.block_diag(*blocks).to(self.weight.dtype)

    def _filter(self, weight: Tensor, x: Tensor) -> Tensor:
        if self.transform == "dct":
            return inverse_dct(weight.exp() * dct(x, self.axes), self.axes)
        axes = tuple(range(-self.axes, 0))
        gain = torch.fft.rfftn(weight, dim=axes, norm="ortho").exp()
        return torch.fft.irfftn(gain * torch.fft.rfftn(x, dim=axes), s=self.shape[1:], dim=axes)


def _matrix(transform: str, size: int) -> Tensor:
    """Return the orthonormal transform of one axis, in double precision."""
    return dct_matrix(size) if transform == "dct" else fourier_matrix(size)
