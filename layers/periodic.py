"""Periodic (circular) convolutions, inverted in the Fourier domain (Hoogeboom et al., ICML 2019)."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from layers.base import InvertibleLinear

# Up to 16 taps a padded convolution is the faster forward pass, above it the FFT (measured on a CPU with 1 to
# 48 channels: 3 x 3 against 5 x 5 on images, and 9, 15 and 25 taps on sequences, forward and backward).
LARGEST_DIRECT = 16


class Periodic(InvertibleLinear, name="periodic"):
    """A circular convolution, y[p] = sum over t of w[t] x[(p + t - m) mod size] + b, on one or two axes.

    The kernel size k may be any, even too: the centre tap, which weighs the pixel itself, has index
    m = (k - 1) // 2 on each axis. A kernel larger than the event wraps around; taps that meet add up.

    Determinant: a Fourier transform over the n positions turns the map into one c x c matrix per frequency,
    What(f) = sum over t of w[t] exp(2 pi i f (t - m) / size), so log|det W| = sum over all n frequencies of
    log|det What(f)|. Of a real kernel's transform only half of the last axis is computed; the columns that
    stand for two frequencies count twice, column 0 and (for an even size) the last one once.
    Inverse: one c x c complex solve per frequency, by LU factorisation; differentiable.
    Cost per event: c^2 n k^2 multiply-adds forward, or c n log n + c^2 n by FFT for large kernels; the
    determinant and the factorisation take c^3 n / 2, once per batch.
    Singular: where some What(f) is.

    Shapes: every (c, H, W) and (c, L). Initially w = N(0, 0.02^2) plus a random orthogonal matrix at the
    centre, b = 0. Parameters: c^2 k^2 + c (c^2 k + c).

    Args:
        shape: event shape.
        kernel_size: k, at least 1, the same on both axes.
        bias: whether there is a b, one number per channel.

    Raises:
        UnsupportedShape: the shape is not an event shape.
        ValueError: the kernel size is not a positive whole number.
    """

    def __init__(self, shape: tuple[int, ...], *, kernel_size: int = 3, bias: bool = True) -> None:
        super().__init__(shape)
        if not isinstance(kernel_size, int) or kernel_size < 1:
            raise ValueError(
                f"{self.label}: kernel_size {kernel_size!r} is not a number of taps; use a whole number >= 1"
            )
        self.kernel_size = kernel_size
        self.centre = (kernel_size - 1) // 2
        axes = len(self.shape) - 1
        weight = 0.02 * torch.randn(self.channels, self.channels, *[kernel_size] * axes)
        centre = self.centre * sum(kernel_size**axis for axis in range(axes))
        weight.flatten(2)[..., centre] += nn.init.orthogonal_(torch.empty(self.channels, self.channels))
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(self.channels)) if bias else None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """y = circular convolution + b, and the sum of log|det What(f)| over all frequencies."""
        self.check_event(x)
        spectrum = self._spectrum()
        axes = len(self.shape) - 1
        if self.kernel_size**axes <= LARGEST_DIRECT and self.kernel_size <= min(self.shape[1:]):
            wrapped = F.pad(x, [self.centre, self.kernel_size - 1 - self.centre] * axes, mode="circular")
            convolve = F.conv2d if axes == 2 else F.conv1d
            y = convolve(wrapped, self.weight, self.bias)
        else:
            y = self._from_frequencies(spectrum @ self._to_frequencies(x))
            if self.bias is not None:
                y = y + self.bias.reshape(-1, *[1] * axes)
        return y, self._log_det(spectrum)

    def inverse(self, y: Tensor) -> Tensor:
        """One complex solve per frequency; differentiable in y and in the parameters."""
        return self._solver()(y)

    @torch.no_grad()
    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Factorise the matrices of all frequencies once."""
        return torch.no_grad()(self._solver())

    @torch.no_grad()
    def dense(self) -> Tensor:
        """W, tap by tap from the definition: (D, D)."""
        sizes = self.shape[1:]
        position = torch.arange(self.positions, device=self.weight.device)
        matrix = self.weight.new_zeros(self.channels, self.positions, self.channels, self.positions)
        for tap, indices in enumerate(itertools.product(range(self.kernel_size), repeat=len(sizes))):
            source, stride = torch.zeros_like(position), 1
            for index, size in zip(reversed(indices), reversed(sizes), strict=True):
                source += (position // stride + index - self.centre) % size * stride
                stride *= size
            matrix[:, position, :, source] += self.weight.flatten(2)[..., tap]
        return matrix.reshape(self.dim, self.dim)

    def extra_repr(self) -> str:
        """Shape and options, for repr()."""
        return f"{super().extra_repr()}, kernel_size={self.kernel_size}, bias={self.bias is not None}"

    def _spectrum(self) -> Tensor:
        """What(f) of the frequencies that a real FFT keeps, row-major: (frequencies, c, c), complex."""
        kernel: Tensor = self.weight
        for axis, size in enumerate(self.shape[1:], start=2):
            place = (torch.arange(self.kernel_size, device=kernel.device) - self.centre) % size
            torus = kernel.new_zeros(*kernel.shape[:axis], size, *kernel.shape[axis + 1 :])
            kernel = torus.index_add(axis, place, kernel)
        # The kernel weighs x[p + s]: a correlation, hence the conjugate.
        return torch.fft.rfftn(kernel, dim=self._axes).conj().flatten(2).permute(2, 0, 1)

    def _log_det(self, spectrum: Tensor) -> Tensor:
        """The sum of log|det What(f)| over all n frequencies, mirrored ones included: ()."""
        width = self.shape[-1]
        logs = torch.linalg.slogdet(spectrum).logabsdet.reshape(-1, width // 2 + 1)
        total = 2 * logs.sum() - logs[:, 0].sum()
        return total - logs[:, -1].sum() if width % 2 == 0 else total

    def _solver(self) -> Callable[[Tensor], Tensor]:
        """The inverse with the present weights. The `_ex` form because the other waits for the device."""
        factors, pivots, _ = torch.linalg.lu_factor_ex(self._spectrum())
        bias = 0 if self.bias is None else self.bias.clone().reshape(-1, *[1] * (len(self.shape) - 1))

        def invert(y: Tensor) -> Tensor:
            self.check_event(y)
            return self._from_frequencies(torch.linalg.lu_solve(factors, pivots, self._to_frequencies(y - bias)))

        return invert

    @property
    def _axes(self) -> tuple[int, ...]:
        return tuple(range(1 - len(self.shape), 0))

    def _to_frequencies(self, x: Tensor) -> Tensor:
        """(N, *shape) -> (frequencies, c, N)."""
        return torch.fft.rfftn(x, dim=self._axes).flatten(2).permute(2, 1, 0)

    def _from_frequencies(self, transform: Tensor) -> Tensor:
        """(frequencies, c, N) -> (N, *shape)."""
        frequencies = (*self.shape[1:-1], self.shape[-1] // 2 + 1)
        half = transform.permute(2, 1, 0).reshape(transform.shape[2], self.channels, *frequencies)
        return torch.fft.irfftn(half, s=self.shape[1:], dim=self._axes)
