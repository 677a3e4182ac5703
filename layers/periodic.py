"""Periodic (circular) convolutions, inverted in the Fourier domain (Hoogeboom et al., ICML 2019)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from layers.base import InvertibleLinear, check_whole
from layers.kernels import load as kernels
from layers.linalg.convolution import wrapped
from layers.linalg.plu import by_matrix

# Up to 16 taps a padded convolution is the faster forward pass, above it the FFT (measured on a CPU with 1 to
# 48 channels: 3 x 3 against 5 x 5 on images, and 9, 15 and 25 taps on sequences, forward and backward).
LARGEST_DIRECT = 16
# Complex numbers of a spectrum that has left the second cache: one pass over it less pays (measured from 24x32x32,
# 0.3 million, where it does not, to 48x32x32 and 96x32x32, 0.92 to 0.96 of the time, forward, backward and inverse).
LEAST_INTERLEAVED = 2**20
# Multiply-adds for an entry of y, up to which the compiled convolution is faster (4 channels and 51 taps: 1.1 of the
# FFT's time forward, 0.7 forward and backward; 8 channels and 51 taps: 1.7 and 1.6).
MOST_PRODUCTS = 208
# Complex multiply-adds of all eliminations, up to which the compiled log-det is faster on one thread, where the forward
# pass already computes the gradient (12x16x16 included, 16x16x16 and 12x32x32 not).
MOST_ELIMINATED = 2**18
# Entries of a batch that are filtered together on a CPU: the passes over one part stay in the second cache, and its
# memory is used again (2.3 to 3.3 times as fast at 3x32x32, 12x16x16 and 12x32x32, batch 256).
MOST_FILTERED = 2**17


class Periodic(InvertibleLinear, name="periodic"):
    """A circular convolution, y[p] = sum over t of w[t] x[(p + t - m) mod size] + b, on one or two axes.

    The kernel size k may be any, even too: the centre tap, which weighs the pixel itself, has index
    m = (k - 1) // 2 on each axis. A kernel larger than the event wraps around; taps that meet add up.

    Determinant: a Fourier transform over the n positions turns the map into one c x c matrix per frequency,
    What(f) = sum over t of w[t] exp(2 pi i f (t - m) / size), so log|det W| = sum over all n frequencies of
    log|det What(f)|. Of a real kernel's transform only half of the last axis is computed; the columns that
    stand for two frequencies count twice, column 0 and (for an even size) the last one once.
    Inverse: one c x c complex matrix per frequency, inverted or, for fewer events than channels, solved with;
    differentiable. For few channels the two transforms of a large batch alone take up to three times as long as the
    forward pass with a small kernel, and the inverse five times.
    Family: convolutions
    Cost:
        forward: c^2 n k^2 multiply-adds per event, or c n log n + c^2 n by FFT for large kernels
        inverse: c n log n + c^2 n, after c^3 n / 2 for the factorisation, once per batch
        log-det: c^3 n / 2, once per batch
    Source: Emerging convolutions (Hoogeboom, van den Berg and Welling, ICML 2019)
    Singular: where some What(f) is.

    Shapes: every (C, L) and (C, H, W)

    Initially w = N(0, 0.02^2) plus a random orthogonal matrix at the
    centre, b = 0. Parameters: c^2 k^2 + c (c^2 k + c).

    Args:
        kernel_size: k, at least 1, the same on both axes.
        bias: whether there is a b, one number per channel.
    """

    def __init__(self, shape: tuple[int, ...], *, kernel_size: int = 3, bias: bool = True) -> None:
        super().__init__(shape)
        check_whole("periodic", "kernel_size", kernel_size)
        self.kernel_size = kernel_size
        self.centre = (kernel_size - 1) // 2
        axes = len(self.shape) - 1
        weight = 0.02 * torch.randn(self.channels, self.channels, *[kernel_size] * axes)
        centre = self.centre * sum(kernel_size**axis for axis in range(axes))
        weight.flatten(2)[..., centre] += nn.init.orthogonal_(torch.empty(self.channels, self.channels))
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(self.channels)) if bias else None
        self.few_taps = kernel_size**axes <= LARGEST_DIRECT
        if self.few_taps:
            # exp(2 pi i f (t - m) / size) of each frequency and tap: all real parts, then all imaginary ones. Kept as
            # the bits of float64, which stay exact where the layer's dtype changes.
            angles = torch.zeros(1, 1, dtype=torch.float64)
            for axis, size in enumerate(self.shape[1:]):
                frequencies = torch.arange(size if axis < axes - 1 else size // 2 + 1)
                turns = (torch.arange(kernel_size) - self.centre) * frequencies[:, None] % size
                along = turns.double() * (2 * math.pi / size)
                angles = (angles[:, None, :, None] + along[:, None, :]).flatten(2).flatten(0, 1)
            self.register_buffer("waves", torch.cat((angles.cos(), angles.sin())).view(torch.int64), persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return y = circular convolution + b, and the sum of log|det What(f)| over all frequencies."""
        after, taps = self.kernel_size - 1 - self.centre, self.weight[0, 0].numel()
        wraps_once = after <= min(self.shape[1:])
        if wraps_once and self.channels * taps <= MOST_PRODUCTS and kernels.serve_on_processor(x, self.weight):
            return torch.ops.invertbench.circular(x, self.weight, self.bias, self.centre), self.log_det()
        if wraps_once and self.few_taps:
            convolve = F.conv2d if x.ndim == 4 else F.conv1d
            return convolve(wrapped(x, self.centre, after), self.weight, self.bias), self.log_det()
        spectrum = self._spectrum()
        return self._filter(spectrum.matmul, x) + self._offset(), self._log_det(spectrum)

    def log_det(self) -> Tensor:
        """Return the sum of log|det What(f)| over all frequencies."""
        if self.few_taps and kernels.serve_on_processor(self.weight):
            waves = self._waves()
            if waves.shape[1] * self.channels**3 <= MOST_ELIMINATED:
                value: Tensor = torch.ops.invertbench.spectral_log_det(self.weight, waves, self.shape[-1])
                return value
        return self._log_det(self._spectrum())

    def inverse(self, y: Tensor) -> Tensor:
        """Return one complex system per frequency; differentiable in y and in the parameters."""
        spectrum = self._spectrum()
        if len(y) < self.channels:  # fewer right-hand sides than the inverse itself would have
            # Together, as every part would factorise anew.
            return self._filter_together(lambda transform: by_matrix(_solve, spectrum, transform), y - self._offset())
        return self._filter(by_matrix(_invert, spectrum).matmul, y - self._offset())

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Invert the matrices of all frequencies once."""
        inverses, offset = by_matrix(_invert, self._spectrum()), self._offset().clone()
        return lambda y: self._filter(inverses.matmul, y - offset)

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return W, tap by tap from the definition: (D, D)."""
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

    def _waves(self) -> Tensor:
        """Return the real parts of exp(2 pi i f (t - m) / size), then the imaginary ones: (2, frequencies, taps)."""
        return self.get_buffer("waves").view(torch.float64).unflatten(0, (2, -1))

    def _spectrum(self) -> Tensor:
        """Return What(f) of the frequencies that a real FFT keeps, row-major: (frequencies, c, c), complex."""
        if self.few_taps:
            taps = self.weight.reshape(self.channels**2, -1).T
            # In double precision: what all frequencies share in rounding would add up in the log-det.
            waves, taps64 = self._waves(), taps.double()
            if waves[0, :, 0].numel() * taps.shape[1] < LEAST_INTERLEAVED:
                real, imaginary = (waves @ taps64).to(taps.dtype).view(2, -1, self.channels, self.channels).unbind()
                return torch.complex(real, imaginary)
            # One product has the pairs of parts in place, for twice the arithmetic, half of it with zeros.
            zeros = torch.zeros_like(taps64)
            pairs = torch.stack((torch.stack((taps64, zeros), -1), torch.stack((zeros, taps64), -1)))
            parts = waves.transpose(0, 1).flatten(1) @ pairs.view(2 * len(taps), -1)
            return torch.view_as_complex(parts.to(taps.dtype).view(-1, self.channels, self.channels, 2))
        kernel: Tensor = self.weight
        for axis, size in enumerate(self.shape[1:], start=2):
            place = (torch.arange(self.kernel_size, device=kernel.device) - self.centre) % size
            torus = kernel.new_zeros(*kernel.shape[:axis], size, *kernel.shape[axis + 1 :])
            kernel = torus.index_add(axis, place, kernel)
        # The kernel weighs x[p + s]: a correlation, hence the conjugate.
        return torch.fft.rfftn(kernel, dim=self._axes).conj().flatten(2).permute(2, 0, 1).contiguous()

    def _log_det(self, spectrum: Tensor) -> Tensor:
        """Return the sum of log|det What(f)| over all n frequencies, mirrored ones included: ()."""
        width = self.shape[-1]
        logs = by_matrix(_log_abs_det, spectrum).reshape(-1, width // 2 + 1)
        total = 2 * logs.sum() - logs[:, 0].sum()
        return total - logs[:, -1].sum() if width % 2 == 0 else total

    def _offset(self) -> Tensor:
        """Return b, in the shape to be added to events."""
        bias = self.weight.new_zeros(1) if self.bias is None else self.bias
        return bias.reshape(-1, *[1] * (len(self.shape) - 1))

    @property
    def _axes(self) -> tuple[int, ...]:
        return tuple(range(1 - len(self.shape), 0))

    def _filter(self, change: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Apply a map of (frequencies, c, N) to the Fourier transform of a batch (N, *shape)."""
        events = max(1, MOST_FILTERED // self.dim)
        if not x.is_cpu or len(x) <= events:
            return self._filter_together(change, x)
        return torch.cat([self._filter_together(change, part) for part in x.split(events)])

    def _filter_together(self, change: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        # Two plain transpositions of matrices: matrix products want the batch last, the transforms want it first.
        half = torch.fft.rfftn(x, dim=self._axes)
        columns = half.reshape(len(x), self.dim // self.shape[-1] * (self.shape[-1] // 2 + 1)).T.contiguous()
        changed = change(columns.unflatten(0, (self.channels, -1)).transpose(0, 1))
        rows = changed.transpose(0, 1).reshape(columns.shape).T.contiguous()
        return torch.fft.irfftn(rows.view(half.shape), s=self.shape[1:], dim=self._axes)


# The `_ex` forms because the others wait for the device.
def _solve(matrices: Tensor, right: Tensor) -> Tensor:
    return torch.linalg.solve_ex(matrices, right)[0]


def _invert(matrices: Tensor) -> Tensor:
    return torch.linalg.inv_ex(matrices)[0]


def _log_abs_det(matrices: Tensor) -> Tensor:
    return torch.linalg.slogdet(matrices).logabsdet
