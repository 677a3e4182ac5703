"""A circulant matrix over all entries of an event."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from layers.base import InvertibleLinear
from layers.linalg.transforms import circulant_matrices, fourier_matrix


class Circulant(InvertibleLinear, name="circulant"):
    r"""Circulant matrix over all D entries of an event, with exp(.) of free numbers as its spectrum; no bias.

    With x the entries position by position, the channels of each together (T, c for a sequence, H, W, c for an image),
    F the orthonormal Fourier transform of length D and g as many real numbers,

        y = F^-1 (exp(F g) * F x).

    Every entry of the output depends on every entry of the input, channels included, and on the difference of their
    places alone; a shift by whole positions is a shift by a multiple of c places, so W commutes with it (of an image:
    in raster order). `spectral` is such a matrix for each channel by itself, over one axis or two, and mixes no
    channels; only on (1, L) are the two the same.

    The Fourier transform of a real g has the symmetry that makes y real, so g is free. g starts at 0: the identity.
    A gain is never zero; those of the constant and of the alternating vector are positive.

    Determinant: log|det| = sqrt(D) g[0], as the sum of F g over all frequencies.
    Inverse: the same with -g.
    Parameters: D, all of them free.
    Singular cases: none.

    Family: circulant factors
    Cost:
        forward: O(D log D), two Fourier transforms of the event and one of g
        inverse: the same
        log-det: one multiplication
    Shapes: every (C, L) and (C, H, W)
    Source: Invertible Convolutional Flow (Karami et al., NeurIPS 2019) has circular convolutions of each channel; here
    all entries are one signal
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.weight = nn.Parameter(torch.zeros(self.dim))  # g

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Filter; see the class for the log-det."""
        return self._filter(self.weight, x), self.log_det()

    def log_det(self) -> Tensor:
        """Return sqrt(D) g[0]."""
        return math.sqrt(self.dim) * self.weight[0]

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Negate the weights once; the callable filters with the reciprocal gains."""
        return partial(self._filter, -self.weight)

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return W by its first column, from the transform's own matrix."""
        transform = fourier_matrix(self.dim).to(self.weight.device)
        gains = (transform @ self.weight.to(transform.dtype)).exp()
        column = (transform.mH @ (gains * transform[:, 0])).real.to(self.weight.dtype)
        place = torch.arange(self.dim, device=column.device).view(self.positions, self.channels).T.flatten()
        return circulant_matrices(column)[place][:, place]

    def _filter(self, weight: Tensor, x: Tensor) -> Tensor:
        gains = torch.fft.rfft(weight, norm="ortho").exp()
        signal = x.flatten(2).mT.flatten(1)
        filtered = torch.fft.irfft(gains * torch.fft.rfft(signal), n=self.dim)
        return filtered.unflatten(1, (self.positions, self.channels)).mT.reshape(x.shape)
