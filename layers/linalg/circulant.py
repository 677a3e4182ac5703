"""Circulant matrices, and the Fourier transform as a matrix: for layers, for `dense` and for tests."""

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
