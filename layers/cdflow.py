"""CDFlow: a 1x1 convolution whose matrix is a product of circulant and diagonal matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from layers.base import InvertibleLinear, check_whole
from layers.linalg.mixing import mix_channels
from layers.linalg.transforms import circulant_matrices, fourier_matrix


class CDFlow(InvertibleLinear, name="cdflow"):
    r"""1x1 convolution y[:, p] = W x[:, p] by m diagonal and m - 1 circulant c x c matrices in turn; no bias.

        W = D_1 C_1 D_2 C_2 ... C_{m-1} D_m,    D_j = diag(d_j),    C_j = F^-1 diag(s_j) F,

    F being the Fourier transform over the c channels. d_j and s_j are learned themselves, s_j with the symmetry
    s[c - k] = conj(s[k]) of a real circulant matrix: c real numbers, first the real parts of s[0] to s[c // 2], then
    the imaginary parts of those that are not their own mirror image. Over the complex numbers every c x c matrix is
    such a product for m = c; the published flows take m = 2.

    All entries of d and s start at absolute value 1, with random signs and phases, so W starts orthogonal, as that of
    `conv1x1`; the initial values of the published layer may be others.

    Determinant: log|det| = n times the sum of log|d_j| over all entries and of log|s_j| over all c frequencies.
    Inverse: D_m^-1 C_{m-1}^-1 ... D_1^-1, by the reciprocals of d_j and s_j.
    Parameters: (2 m - 1) c; a scale may move from one factor to the next.
    Singular cases: where some d_j or s_j has a zero; log|det| = -inf there.

    Family: 1x1 convolutions
    Cost:
        forward: c^2 n multiply-adds, after O(m c log c + c^2) for the entries of W, and c^3 for each m above 2. On a
        CPU that is faster than a Fourier transform of every position at 96 channels, and slower at 384
        inverse: the same
        log-det: O(m c)
    Shapes: every (C, L) and (C, H, W)
    Source: CDFlow (Feng and Liao, NeurIPS 2025); factors: Huhtanen and Peramaki (2015)

    Args:
        diagonals: m, at least 1.
    """

    replaces_mixer = True

    def __init__(self, shape: tuple[int, ...], *, diagonals: int = 2) -> None:
        super().__init__(shape)
        check_whole("cdflow", "diagonals", diagonals)
        self.diagonals = diagonals
        self.scales = nn.Parameter(torch.randn(diagonals, self.channels).sign())  # d
        angles = 2 * math.pi * torch.rand(diagonals - 1, self.channels // 2 + 1)
        own_mirror = torch.arange(self.channels // 2 + 1) * 2 % self.channels == 0
        real = torch.where(own_mirror, angles.cos().sign(), angles.cos())
        self.spectra = nn.Parameter(torch.cat((real, angles.sin()[:, ~own_mirror]), 1))  # s

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply W at every position; see the class for the log-det."""
        return mix_channels(self.matrix(), x), self.log_det()

    def log_det(self) -> Tensor:
        """Return n times the logs of all d and s."""
        logs = self._half_spectra().abs().log()
        mirrored = logs[:, 1 : self.channels - logs.shape[1] + 1]  # frequencies that stand for their mirror image too
        return self.positions * (self.scales.abs().log().sum() + logs.sum() + mirrored.sum())

    def matrix(self) -> Tensor:
        """Return W, (C, C)."""
        return self._product(self.scales, self._half_spectra())

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Build W^-1 once; the callable applies it at every position."""
        inverse = self._product(self.scales.reciprocal().flip(0), self._half_spectra().reciprocal().flip(0))
        return partial(mix_channels, inverse)

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return W (x) I_n, each circulant matrix as F^-1 diag(s) F with the transform's own matrix."""
        transform = fourier_matrix(self.channels).to(self.scales.device)
        half = self._half_spectra().to(transform.dtype)
        weight = torch.diag(self.scales[0]).to(transform.dtype)
        for spectrum, scale in zip(half, self.scales[1:], strict=True):
            mirrored = spectrum[1 : self.channels - len(spectrum) + 1].flip(0).conj()
            weight = weight @ (transform.mH * torch.cat((spectrum, mirrored)) @ transform) * scale
        one = torch.eye(self.positions, dtype=self.scales.dtype, device=self.scales.device)
        return torch.kron(weight.real.to(one.dtype), one)

    def _half_spectra(self) -> Tensor:
        """Return s[0] to s[c // 2] of every circulant matrix, complex: (m - 1, c // 2 + 1)."""
        count = self.channels // 2 + 1
        imaginary = F.pad(self.spectra[:, count:], (1, 2 * count - 1 - self.channels))
        return torch.complex(self.spectra[:, :count], imaginary)

    def _product(self, scales: Tensor, half_spectra: Tensor) -> Tensor:
        """Return the product of the diagonal and the circulant matrices of these entries and spectra."""
        if self.diagonals == 1:
            return torch.diag(scales[0])
        circulants = circulant_matrices(torch.fft.irfft(half_spectra, n=self.channels))
        weight = scales[0][:, None] * circulants[0] * scales[1]
        for circulant, scale in zip(circulants[1:], scales[2:], strict=True):
            weight = weight @ circulant * scale
        return weight
