"""Circulant and Fourier matrices, and the orthonormal discrete cosine transform (DCT-II) along the last axes.

    X[k] = sqrt(2 / n) sum over j of x[j] cos(pi k (2 j + 1) / (2 n)),    X[0] times sqrt(1 / 2).

The DCT is one complex Fourier transform of the same length, for every n: O(n log n). Source: Makhoul (1980).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def circulant_matrices(columns: Tensor) -> Tensor:
    """Return the matrices C[i, j] = a[(i - j) mod n] of first columns a, (..., n): (..., n, n)."""
    backwards = columns.flip(-1).roll(1, -1)
    size = columns.shape[-1]
    return torch.cat((backwards, backwards), -1).unfold(-1, size, 1)[..., 1:, :].flip(-2)


def fourier_matrix(size: int) -> Tensor:
    """Return the orthonormal Fourier transform of `size` entries as a matrix, from its definition: complex128."""
    place = torch.arange(size)
    angle = (place[:, None] * place % size).double() * (-2 * math.pi / size)
    return torch.polar(torch.full_like(angle, size**-0.5), angle)


def dct(x: Tensor, axes: int) -> Tensor:
    """Transform the last `axes` axes, one after the other."""
    for axis in range(-axes, 0):
        x = _dct_last(x.movedim(axis, -1)).movedim(-1, axis)
    return x


def inverse_dct(y: Tensor, axes: int) -> Tensor:
    """Undo `dct`."""
    for axis in range(-axes, 0):
        y = _inverse_dct_last(y.movedim(axis, -1)).movedim(-1, axis)
    return y


def dct_matrix(size: int) -> Tensor:
    """Return the transform of `size` entries as a matrix, from its definition: float64."""
    k, j = torch.arange(size, dtype=torch.float64)[:, None], torch.arange(size, dtype=torch.float64)
    matrix = math.sqrt(2 / size) * torch.cos(math.pi * k * (2 * j + 1) / (2 * size))
    matrix[0] *= math.sqrt(0.5)
    return matrix


def _dct_last(x: Tensor) -> Tensor:
    # Even places, then odd ones backwards: a Fourier transform of these is the cosine transform, but for a turn.
    folded = torch.cat([x[..., ::2], x[..., 1::2].flip(-1)], -1)
    return (torch.fft.fft(folded) * _turns(x)).real * _scales(x)


def _inverse_dct_last(y: Tensor) -> Tensor:
    size = y.shape[-1]
    cosines = y / _scales(y)
    sines = torch.cat([torch.zeros_like(cosines[..., :1]), cosines[..., 1:].flip(-1)], -1)
    folded = torch.fft.ifft(torch.complex(cosines, -sines) * _turns(y).conj()).real
    place = torch.arange(size, device=y.device)
    source = torch.where(place % 2 == 0, place // 2, size - 1 - place // 2)
    return folded[..., source]


def _turns(like: Tensor) -> Tensor:
    """Return exp(-i pi k / (2 n)), computed in double precision."""
    size = like.shape[-1]
    angle = torch.arange(size, dtype=torch.float64, device=like.device) * (-math.pi / (2 * size))
    return torch.polar(torch.ones_like(angle), angle).to(like.dtype.to_complex())


def _scales(like: Tensor) -> Tensor:
    """Return the factors that make the transform orthonormal."""
    size = like.shape[-1]
    scales = like.new_full((size,), math.sqrt(2 / size))
    scales[0] = math.sqrt(1 / size)
    return scales
